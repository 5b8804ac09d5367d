package org.logstore.spark.plan;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.logstore.spark.LogstoreException;
import org.logstore.spark.log.Split;

/**
 * Asks the session's Python what a query reads.
 *
 * <p>There is one process for each Python in this JVM, started at the first request, and again
 * after it ended. An error of it is a LogstoreException of the same kind and text.
 */
public final class Planner {
  /** The setting of the session for how long a request may take, in seconds. */
  public static final String TIMEOUT = "spark.logstore.planTimeoutSeconds";

  /** The setting of the session for which reader reads where no option says it. */
  private static final String READER = "spark.logstore.reader";

  private static final String LOG_LEVEL = "spark.logstore.logLevel";
  private static final String TIMEOUT_SECONDS = "600";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, PlannerProcess> PROCESSES = new HashMap<>();

  private final String python;
  private final Duration limit;
  private final int logLevel;
  private final String reader;
  private final int cores;

  private Planner(SparkSession session) {
    python = PlannerPython.of(session);
    limit = Duration.ofSeconds(number(session, TIMEOUT, TIMEOUT_SECONDS, 1));
    logLevel = (int) number(session, LOG_LEVEL, "0", 0);
    reader = session.conf().get(READER, "");
    cores = Math.max(1, session.sparkContext().defaultParallelism());
  }

  /** The planner of the session that is active in this thread. */
  public static Planner ofSession() {
    return new Planner(SparkSession.active());
  }

  /** How many tasks run at once. */
  public int cores() {
    return cores;
  }

  private static long number(SparkSession session, String key, String standard, long least) {
    String text = session.conf().get(key, standard);
    try {
      long found = Long.parseLong(text);
      if (found >= least && found <= Integer.MAX_VALUE) {
        return found;
      }
    } catch (NumberFormatException error) {
      // told below
    }
    throw new LogstoreException(
        "OptionError", key + " must be a whole number from " + least + " on, not " + text);
  }

  /**
   * The columns of a load without a schema.
   *
   * @param schema null if the Python source must read
   * @param whyPython why it must; else empty
   */
  public record Schema(StructType schema, String whyPython) {}

  /** The columns of a load without a schema. */
  public Schema schema(Map<String, String> options) {
    JsonNode answer = ask(request("schema", options));
    String why = answer.path("python").asText("");
    if (!why.isEmpty()) {
      return new Schema(null, why);
    }
    return new Schema((StructType) DataType.fromJson(answer.path("schema").asText()), "");
  }

  /**
   * How a batch with columns is read.
   *
   * @param columns null if the Python source must read
   * @param whyPython why it must; else empty
   */
  public record Columns(PlannedColumns columns, String whyPython) {}

  /** How a batch with the columns of a schema is read. */
  public Columns columns(Map<String, String> options, StructType schema) {
    JsonNode answer = ask(request("columns", options).put("schema", schema.json()));
    String why = answer.path("python").asText("");
    return new Columns(why.isEmpty() ? PlannedColumns.of(answer, schema) : null, why);
  }

  /** The splits of a new plan, pinned, of a batch with the columns of a schema. */
  public PlannedSplits splits(Map<String, String> options, StructType schema) {
    return PlannedSplits.of(ask(request("plan", options).put("schema", schema.json())));
  }

  /**
   * In which nodes of splits an entry may be for which a condition is true, by their numbers.
   *
   * @param splits of stores in directories
   */
  public List<BitSet> select(Map<String, String> options, List<Split> splits, String condition) {
    ObjectNode request = request("select", options);
    try {
      request.set("condition", JSON.readTree(condition));
    } catch (JsonProcessingException impossible) {
      throw new IllegalArgumentException(impossible);
    }
    ArrayNode told = request.putArray("splits");
    for (Split each : splits) {
      told.addObject()
          .put("store", each.store())
          .put("home", each.home())
          .put("uuid", HexFormat.of().formatHex(each.uuid()))
          .put("pin_id", each.pinId())
          .put("offset", each.offset())
          .put("size_bytes", each.sizeBytes());
    }
    List<BitSet> found = new ArrayList<>();
    for (JsonNode each : ask(request).path("nodes")) {
      found.add(BitSet.valueOf(Base64.getDecoder().decode(each.asText())));
    }
    if (found.size() != splits.size()) {
      throw new LogstoreException(
          "Error", "the planner told of other splits than it was asked for");
    }
    return found;
  }

  /** A request of a kind, with the options as Spark has them. */
  public ObjectNode request(String kind, Map<String, String> options) {
    ObjectNode made = JSON.createObjectNode().put("kind", kind);
    ObjectNode given = made.putObject("options");
    options.forEach(given::put);
    if (!reader.isEmpty() && options.keySet().stream().noneMatch("reader"::equalsIgnoreCase)) {
      given.put("reader", reader);
    }
    return made.put("cores", cores).put("log_level", logLevel);
  }

  /**
   * The answer to a request; a LogstoreException for an error, or if there is none. A process that
   * ends without an answer is followed by another one, once.
   */
  public JsonNode ask(ObjectNode request) {
    JsonNode answer = process().ask(request, limit);
    if (answer == null) { // killed before it was asked, perhaps: that is noticed a moment later
      PlannerProcess another = process();
      answer = another.ask(request, limit);
      if (answer == null) {
        throw another.ended();
      }
    }
    JsonNode error = answer.get("error");
    if (error != null) {
      throw new LogstoreException(
          error.path("kind").asText("Error"), error.path("message").asText(""));
    }
    return answer;
  }

  private PlannerProcess process() {
    synchronized (PROCESSES) {
      PlannerProcess found = PROCESSES.get(python);
      if (found == null || !found.isAlive()) {
        found =
            new PlannerProcess(
                List.of(python, "-m", "logstore.spark_io.plan"), PlannerPython.environment());
        PROCESSES.remove(python);
        try {
          JarVersion.check(found.hello(limit), python);
        } catch (LogstoreException error) {
          found.end();
          throw error;
        }
        PROCESSES.put(python, found);
      }
      return found;
    }
  }
}
