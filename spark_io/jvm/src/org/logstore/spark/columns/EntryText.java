package org.logstore.spark.columns;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.Set;

/**
 * One entry as JSON that keeps every byte of its values, as {@code scan_records.entry_object} and
 * Python's {@code json.dumps} make it. Names are text here, whatever they were.
 */
final class EntryText {
  private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
  private static final int FIRST_BYTES = 256;
  private static final int KEPT_BYTES = 1 << 20;

  private byte[] raw = new byte[FIRST_BYTES]; // names and values in turn
  private int[] ends = new int[16]; // of them
  private int parts;

  private byte[] json = new byte[FIRST_BYTES];
  private int size;

  /** An entry begins. */
  void begin() {
    parts = 0;
  }

  /** The next name. */
  void name(byte[] data, int offset, int length) {
    if (Utf8.isValid(data, offset, length)) {
      value(data, offset, length);
    } else {
      byte[] replaced = Utf8.replaced(data, offset, length);
      value(replaced, 0, replaced.length);
    }
  }

  /** The next value. */
  void value(byte[] data, int offset, int length) {
    int start = start(parts);
    raw = widened(raw, start, length);
    System.arraycopy(data, offset, raw, start, length);
    if (parts == ends.length) {
      ends = Arrays.copyOf(ends, 2 * parts);
    }
    ends[parts++] = start + length;
  }

  private int start(int part) {
    return part == 0 ? 0 : ends[part - 1];
  }

  private static byte[] widened(byte[] data, int used, int more) {
    if (more <= data.length - used) {
      return data;
    }
    if (more > TextColumn.BYTES_MAX - used) {
      throw TextColumn.tooLarge();
    }
    int doubled = (int) Math.min(2L * data.length, TextColumn.BYTES_MAX);
    return Arrays.copyOf(data, Math.max(doubled, used + more));
  }

  /** Puts the entry into a row. */
  void put(TextColumn column, int row, long ms, long seq) {
    size = 0;
    write("{\"id\": \"");
    json = widened(json, size, 2 * Digits.MAX + 1);
    size = Digits.putUnsigned(ms, json, size);
    json[size++] = '-';
    size = Digits.putUnsigned(seq, json, size);
    if (!isText()) {
      writePairs("\", \"pairs_base64\": [", "[", ", ", "]", "]}", true);
    } else if (repeats()) {
      writePairs("\", \"pairs\": [", "[", ", ", "]", "]}", false);
    } else {
      writePairs("\", \"fields\": {", "", ": ", "", "}}", false);
    }
    column.text(row, json, 0, size);
    json = json.length > KEPT_BYTES ? new byte[FIRST_BYTES] : json;
    raw = raw.length > KEPT_BYTES ? new byte[FIRST_BYTES] : raw;
    parts = 0;
  }

  private boolean isText() {
    for (int i = 1; i < parts; i += 2) {
      if (!Utf8.isValid(raw, start(i), ends[i] - start(i))) {
        return false;
      }
    }
    return true;
  }

  private boolean repeats() {
    Set<ByteBuffer> names = new HashSet<>();
    for (int i = 0; i < parts; i += 2) {
      if (!names.add(ByteBuffer.wrap(raw, start(i), ends[i] - start(i)))) {
        return true;
      }
    }
    return false;
  }

  private void writePairs(
      String open, String before, String between, String after, String close, boolean base64) {
    write(open);
    for (int i = 0; i < parts; i += 2) {
      write(i == 0 ? before : ", " + before);
      write(i, base64);
      write(between);
      write(i + 1, base64);
      write(after);
    }
    write(close);
  }

  private void write(String text) {
    byte[] data = text.getBytes(StandardCharsets.US_ASCII);
    write(data, 0, data.length);
  }

  private void write(byte[] data, int from, int upto) {
    json = widened(json, size, upto - from);
    System.arraycopy(data, from, json, size, upto - from);
    size += upto - from;
  }

  /** Writes a name or value in quotes. */
  private void write(int part, boolean base64) {
    int from = start(part);
    int end = ends[part];
    write("\"");
    if (base64) {
      byte[] encoded = Base64.getEncoder().encode(Arrays.copyOfRange(raw, from, end));
      write(encoded, 0, encoded.length);
    } else {
      for (int at = from; at < end; at++) {
        String escape = escape(raw[at]);
        if (escape != null) {
          write(raw, from, at);
          write(escape);
          from = at + 1;
        }
      }
      write(raw, from, end);
    }
    write("\"");
  }

  private static String escape(byte one) {
    return switch (one) {
      case '"' -> "\\\"";
      case '\\' -> "\\\\";
      case '\n' -> "\\n";
      case '\r' -> "\\r";
      case '\t' -> "\\t";
      case '\f' -> "\\f";
      case '\b' -> "\\b";
      default ->
          one >= 0 && one < 0x20 ? "\\u00" + (char) HEX[one >> 4] + (char) HEX[one & 15] : null;
    };
  }
}
