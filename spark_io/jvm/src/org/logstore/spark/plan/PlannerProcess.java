package org.logstore.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.logstore.spark.LogstoreException;

/**
 * A Python that answers requests, a line of JSON each ({@code logstore.spark_io.plan}).
 *
 * <p>It ends with this JVM, which closes its input. What it says on standard error comes out on
 * this process's, where Spark puts what its own Python processes say. One request is on its way at
 * a time. After an answer that is none, or that does not come in time, the process is ended: a
 * later one would answer another request.
 */
final class PlannerProcess {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int ANSWER_BYTES_MAX = 512 << 20;
  private static final int ANSWERS_MAX = 8;
  private static final int TOLD_LINES_MAX = 20;
  private static final int TOLD_CHARS_MAX = 2000;
  private static final byte[] END = new byte[0];

  private final Process process;
  private final String command;
  private final BlockingQueue<byte[]> requests = new LinkedBlockingQueue<>();
  private final BlockingQueue<byte[]> answers = new LinkedBlockingQueue<>(ANSWERS_MAX);
  private final Deque<String> told = new ArrayDeque<>();
  private final Thread listener;
  private long asked;

  /** Starts a command; a LogstoreException says why it cannot. */
  PlannerProcess(List<String> command, Map<String, String> environment) {
    this.command = String.join(" ", command);
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().putAll(environment);
    try {
      process = builder.start();
    } catch (IOException error) {
      throw new LogstoreException(
          "OptionError", this.command + " does not start: " + PlannerPython.ADVICE, error);
    }
    begin("answers", this::readAnswers);
    begin("requests", this::writeRequests);
    listener = begin("log", this::readLog);
  }

  private Thread begin(String what, Runnable work) {
    Thread thread = new Thread(work, "logstore-planner-" + what + "-" + process.pid());
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  boolean isAlive() {
    return process.isAlive();
  }

  void end() {
    process.toHandle().destroyForcibly(); // the other one closes what it has said
  }

  /** The first line, which it says by itself. */
  synchronized JsonNode hello(Duration limit) {
    JsonNode said = answer(0, limit);
    if (said == null) {
      throw ended();
    }
    return said;
  }

  /** What tells that it ended without an answer. */
  LogstoreException ended() {
    return failed("ended" + exitCode(), ": " + PlannerPython.ADVICE);
  }

  /**
   * The answer to a request, null if the process ends without one; a LogstoreException if there is
   * none within the limit.
   */
  synchronized JsonNode ask(ObjectNode request, Duration limit) {
    request.put("id", ++asked);
    try {
      byte[] line = JSON.writeValueAsBytes(request);
      requests.add(line);
    } catch (IOException error) {
      throw new LogstoreException("Error", "a request is no JSON", error);
    }
    return answer(asked, limit);
  }

  private JsonNode answer(long id, Duration limit) {
    long until = System.nanoTime() + limit.toNanos();
    while (true) {
      byte[] line;
      try {
        line = answers.poll(Math.max(0, until - System.nanoTime()), TimeUnit.NANOSECONDS);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        throw new LogstoreException("Error", "the thread was interrupted while it planned", error);
      }
      if (line == null) {
        throw failed(
            "did not answer within "
                + limit.toSeconds()
                + " s: see what holds it up, or give it longer by "
                + Planner.TIMEOUT,
            "");
      }
      if (line == END) {
        answers.add(END); // for whoever asks next
        end();
        exitCode(); // from here on it is known not to be alive
        return null;
      }
      JsonNode found = parsed(line);
      long number = found.path("id").asLong(0);
      if (number == id) {
        return found;
      }
      if (number > id || number <= 0) {
        throw failed("gave an answer that nobody asked for", ": " + PlannerPython.ADVICE);
      }
      // The answer to an older request, whose thread was interrupted.
    }
  }

  private JsonNode parsed(byte[] line) {
    try {
      JsonNode found = JSON.readTree(line);
      if (found != null && found.isObject()) {
        return found;
      }
    } catch (IOException error) {
      // told below
    }
    throw failed("gave an answer that is no JSON object", ": " + PlannerPython.ADVICE);
  }

  private LogstoreException failed(String how, String advice) {
    end();
    try {
      process.waitFor(5, TimeUnit.SECONDS);
      listener.join(1000); // what it said last
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
    String last;
    synchronized (told) {
      last = String.join("\n", told);
    }
    return new LogstoreException(
        "Error",
        "the process that plans ("
            + command
            + ") "
            + how
            + advice
            + "; the next query starts another one."
            + (last.isEmpty() ? "" : " It said last:\n" + last));
  }

  private String exitCode() {
    try {
      return process.waitFor(5, TimeUnit.SECONDS) ? " with code " + process.exitValue() : "";
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      return "";
    }
  }

  private void writeRequests() {
    try (OutputStream out = process.getOutputStream()) {
      while (process.isAlive()) {
        byte[] line = requests.poll(1, TimeUnit.SECONDS);
        if (line != null) {
          out.write(line);
          out.write('\n');
          out.flush();
        }
      }
    } catch (IOException | InterruptedException error) {
      // It ended, which the end of its answers tells.
    }
  }

  private void readAnswers() {
    try (InputStream in = new BufferedInputStream(process.getInputStream(), 1 << 16)) {
      ByteArrayOutputStream line = new ByteArrayOutputStream();
      for (int next = in.read(); next >= 0; next = in.read()) {
        if (next == '\n') {
          answers.put(line.toByteArray());
          line = new ByteArrayOutputStream();
        } else if (line.size() == ANSWER_BYTES_MAX) {
          break;
        } else {
          line.write(next);
        }
      }
      answers.put(END);
    } catch (IOException | InterruptedException error) {
      answers.clear();
      answers.add(END);
    } finally {
      end();
    }
  }

  private void readLog() {
    try (BufferedReader in =
        new BufferedReader(
            new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        System.err.println(line);
        synchronized (told) {
          told.add(line.substring(0, Math.min(line.length(), TOLD_CHARS_MAX)));
          if (told.size() > TOLD_LINES_MAX) {
            told.remove();
          }
        }
      }
    } catch (IOException error) {
      // It ended.
    }
  }
}
