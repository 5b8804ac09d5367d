import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;
import org.logstore.spark.LogstoreException;
import org.logstore.spark.log.EntrySink;
import org.logstore.spark.log.Split;
import org.logstore.spark.log.SplitEntries;

/**
 * Reads splits for tests: a request a line, as JSON, and for each an answer, with the entries.
 *
 * <p>Anything but a LogstoreException ends the answer with the kind "crash".
 */
public final class SplitDump {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final List<String> LOGGED = new ArrayList<>();

  private SplitDump() {}

  public static void main(String[] args) throws IOException {
    PrintStream out = System.out;
    System.setOut(System.err);
    Logger logger = (Logger) LogManager.getLogger("logstore.spark");
    logger.addAppender(new Kept());
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
      out.flush();
    }
  }

  private static ObjectNode answer(JsonNode request) {
    ObjectNode answer = JSON.createObjectNode();
    LOGGED.clear();
    Rows rows = new Rows(request, answer.putArray("rows"));
    try (SplitEntries entries =
        new SplitEntries(
            split(request.get("split")), request.get("failOnDataLoss").asBoolean(), hadoop())) {
      try {
        while (entries.fill(rows)) {
          rows.take();
        }
        rows.take();
      } finally {
        answer.put("nodes", entries.nodes());
        answer.put("bytes", entries.bytes());
        answer.put("lost", entries.lost());
      }
    } catch (LogstoreException exc) {
      answer.put("kind", exc.kind());
      answer.put("error", exc.getMessage());
    } catch (RuntimeException | Error exc) {
      exc.printStackTrace();
      answer.put("kind", "crash");
      answer.put("error", exc.toString());
    }
    answer.put("count", rows.count);
    answer.put("batches", rows.batches);
    answer.put("most", rows.most);
    answer.put("logged", String.join("\n", LOGGED));
    return answer;
  }

  private static Configuration hadoop() {
    return new Configuration(false);
  }

  private static Split split(JsonNode from) throws NumberFormatException {
    List<Split.ShippedObject> objects = new ArrayList<>();
    for (JsonNode each : from.get("objects")) {
      objects.add(
          new Split.ShippedObject(
              each.get(0).asText(),
              each.get(1).asLong(),
              each.get(2).asText(),
              each.get(3).asText()));
    }
    return new Split(
        from.get("store").asText(),
        from.get("home").asText(),
        bytes(from.get("uuid")),
        from.get("pinId").asText(),
        from.get("offset").asLong(),
        from.get("sizeBytes").asLong(),
        0,
        0,
        -1,
        -1,
        0,
        0,
        0,
        bytes(from.get("blocks")),
        objects);
  }

  private static byte[] bytes(JsonNode text) {
    return Base64.getDecoder().decode(text.asText());
  }

  /** Keeps the messages of the log. */
  private static final class Kept extends AbstractAppender {
    Kept() {
      super("kept", null, null, true, Property.EMPTY_ARRAY);
      start();
    }

    @Override
    public void append(LogEvent event) {
      LOGGED.add(event.getMessage().getFormattedMessage());
    }
  }

  /**
   * Gathers rows: stream, ID, segment, offset, pairs and the values of the fields that are asked
   * for. It checks that it is called in the right order.
   */
  private static final class Rows implements EntrySink {
    private final boolean counts;
    private final boolean pairs;
    private final int batchRows;
    private final List<byte[]> fields = new ArrayList<>();
    private final ArrayNode all;
    private final List<ArrayNode> rows = new ArrayList<>();
    private String stream;
    private ArrayNode row;
    private String pairName;
    private String[] values;
    private long count;
    private int counted;
    private int batches;
    private int most;

    Rows(JsonNode request, ArrayNode all) {
      counts = request.get("counts").asBoolean();
      pairs = request.get("pairs").asBoolean();
      batchRows = request.get("batchRows").asInt();
      request.get("fields").forEach(each -> fields.add(bytes(each)));
      this.all = all;
    }

    private static String text(byte[] data, int offset, int length) {
      return Base64.getEncoder().encodeToString(Arrays.copyOfRange(data, offset, offset + length));
    }

    private void must(boolean holds) {
      if (!holds) {
        throw new IllegalStateException("called out of order");
      }
    }

    void take() {
      must(row == null);
      int found = rows();
      count += found;
      most = Math.max(most, found);
      batches++;
      rows.forEach(all::add);
      rows.clear();
      counted = 0;
    }

    @Override
    public void stream(byte[] name) {
      stream = text(name, 0, name.length);
    }

    @Override
    public int field(byte[] data, int offset, int length) {
      for (int i = 0; i < fields.size(); i++) {
        if (Arrays.equals(fields.get(i), 0, fields.get(i).length, data, offset, offset + length)) {
          return i;
        }
      }
      return NONE;
    }

    @Override
    public boolean wantsPairs() {
      return pairs;
    }

    @Override
    public void begin(long ms, long seq, int segment, long nodeOffset) {
      must(row == null && !counts);
      row = JSON.createArrayNode();
      row.add(stream);
      row.add(Long.toUnsignedString(ms) + "-" + Long.toUnsignedString(seq));
      row.add(segment).add(nodeOffset);
      row.addArray();
      values = new String[fields.size()];
    }

    @Override
    public void pair(byte[] data, int offset, int length) {
      must(row != null && pairs && pairName == null);
      pairName = text(data, offset, length);
    }

    @Override
    public void text(int field, byte[] data, int offset, int length) {
      put(field, text(data, offset, length));
    }

    @Override
    public void number(int field, long value) {
      byte[] digits = Long.toString(value).getBytes();
      put(field, text(digits, 0, digits.length));
    }

    private void put(int field, String value) {
      must(row != null && pairs == (pairName != null) && (pairs || field != NONE));
      if (pairs) {
        ((ArrayNode) row.get(4)).add(pairName).add(value);
        pairName = null;
      }
      if (field != NONE) {
        values[field] = value;
      }
    }

    @Override
    public void end() {
      must(row != null && pairName == null);
      ArrayNode last = row.addArray();
      for (String each : values) {
        last.add(each);
      }
      rows.add(row);
      row = null;
    }

    @Override
    public boolean counts() {
      return counts;
    }

    @Override
    public void count(int rows) {
      must(counts && rows > 0 && rows <= COUNTED_MAX);
      counted += rows;
    }

    @Override
    public int rows() {
      return counts ? counted : rows.size();
    }

    @Override
    public void backTo(int before) {
      row = null;
      pairName = null;
      while (rows.size() > before) {
        rows.remove(rows.size() - 1);
      }
    }

    @Override
    public boolean isFull() {
      return rows() >= batchRows;
    }
  }
}
