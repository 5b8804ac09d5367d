package org.logstore.spark.log;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.logstore.spark.Repr;

/** The texts of errors, as {@code str(error)} of {@code logstore.errors} gives them. */
final class ErrorText {
  private ErrorText() {}

  /** A message with the stream, segment and offset that it is about; those that are null, not. */
  static String at(String message, byte[] stream, Long segment, Long offset) {
    List<String> where = new ArrayList<>();
    if (stream != null) {
      where.add("stream " + Repr.of(text(stream)));
    }
    if (segment != null) {
      where.add("segment " + Long.toUnsignedString(segment));
    }
    if (offset != null) {
      where.add("offset " + Long.toUnsignedString(offset));
    }
    return where.isEmpty() ? message : message + " (" + String.join(", ", where) + ")";
  }

  /** A URI without the secrets that it may have: user, password and query. */
  static String shown(String uri) {
    int scheme = uri.indexOf("://");
    if (scheme < 0) {
      return uri;
    }
    String rest = cutAt(cutAt(uri.substring(scheme + 3), '#'), '?');
    int slash = rest.indexOf('/');
    String host = slash < 0 ? rest : rest.substring(0, slash);
    String path = slash < 0 ? "" : rest.substring(slash);
    return uri.substring(0, scheme) + "://" + host.substring(host.lastIndexOf('@') + 1) + path;
  }

  private static String cutAt(String text, char mark) {
    int at = text.indexOf(mark);
    return at < 0 ? text : text.substring(0, at);
  }

  /** UTF-8 as text; each byte that is none as a backslash, an x and its two digits. */
  static String text(byte[] data) {
    StringBuilder out = new StringBuilder();
    for (int at = 0; at < data.length; ) {
      int size = sequenceBytes(data, at);
      if (size == 0) {
        out.append(String.format("\\x%02x", data[at++] & 0xFF));
      } else {
        out.append(new String(data, at, size, StandardCharsets.UTF_8));
        at += size;
      }
    }
    return out.toString();
  }

  /** How many bytes the character at an index has; 0 if there is none. */
  private static int sequenceBytes(byte[] data, int at) {
    int lead = data[at] & 0xFF;
    if (lead < 0x80) {
      return 1;
    }
    int size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (size == 0 || at + size > data.length) {
      return 0;
    }
    for (int i = 1; i < size; i++) {
      if ((data[at + i] & 0xC0) != 0x80) {
        return 0;
      }
    }
    int second = data[at + 1] & 0xFF;
    boolean overlong = lead == 0xE0 && second < 0xA0 || lead == 0xF0 && second < 0x90;
    boolean outside = lead == 0xED && second >= 0xA0 || lead == 0xF4 && second >= 0x90;
    return overlong || outside ? 0 : size;
  }
}
