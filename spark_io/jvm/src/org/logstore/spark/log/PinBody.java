package org.logstore.spark.log;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * The content of a pin, a map in MessagePack of which a few values are looked at in place.
 *
 * <p>Walks stay in the bytes and end: each step takes at least a byte.
 */
final class PinBody {
  private static final List<String> NAMES =
      List.of("id", "segments", "expires_ms", "ttl_ms", "pid");

  private final byte[] data;
  private int pos;
  private String id = "";
  private long ttlMs;
  private long expiresMs;
  private int expiresAt;
  private int expiresEnd;

  private PinBody(byte[] data) {
    this.data = data;
  }

  /** The content; null if the bytes are not what a pin holds. */
  static PinBody of(byte[] data) {
    PinBody made = new PinBody(data);
    try {
      return made.readMap() ? made : null;
    } catch (IndexOutOfBoundsException cutOff) {
      return null;
    }
  }

  String id() {
    return id;
  }

  long expiresMs() {
    return expiresMs;
  }

  long ttlMs() {
    return ttlMs;
  }

  /** The same content with another end. */
  byte[] withEnd(long expiresMs) {
    byte[] made = new byte[data.length - (expiresEnd - expiresAt) + 9];
    System.arraycopy(data, 0, made, 0, expiresAt);
    made[expiresAt] = (byte) 0xCF;
    for (int i = 0; i < 8; i++) {
      made[expiresAt + 1 + i] = (byte) (expiresMs >>> (56 - 8 * i));
    }
    System.arraycopy(data, expiresEnd, made, expiresAt + 9, data.length - expiresEnd);
    return made;
  }

  private boolean readMap() {
    int code = data[pos++] & 0xFF;
    long pairs;
    if ((code & 0xF0) == 0x80) {
      pairs = code & 0x0F;
    } else if (code == 0xDE || code == 0xDF) {
      pairs = unsigned(code == 0xDE ? 2 : 4);
    } else {
      return false;
    }
    Set<String> seen = new HashSet<>();
    for (long i = 0; i < pairs; i++) {
      String name = string();
      if (name != null) {
        seen.add(name);
      }
      if (!readValue(name == null ? "" : name)) {
        return false;
      }
    }
    return pos == data.length && seen.containsAll(NAMES);
  }

  private boolean readValue(String name) {
    int begin = pos;
    switch (name) {
      case "id" -> {
        id = string();
        return id != null;
      }
      case "segments" -> {
        int code = data[pos] & 0xFF;
        skip();
        return code == 0xC0 || (code & 0xF0) == 0x90 || code == 0xDC || code == 0xDD;
      }
      case "ttl_ms" -> {
        ttlMs = integer();
        return ttlMs >= 0;
      }
      case "expires_ms" -> {
        expiresMs = integer();
        expiresAt = begin;
        expiresEnd = pos;
        return expiresMs >= 0;
      }
      default -> skip();
    }
    return true;
  }

  /** A number that is not negative; -1 for anything else. */
  private long integer() {
    int code = data[pos] & 0xFF;
    if (code < 0x80) {
      pos++;
      return code;
    }
    if (code < 0xCC || code > 0xD3) {
      skip();
      return -1;
    }
    pos++;
    int width = 1 << (code - 0xCC & 3);
    long found = unsigned(width);
    if (code >= 0xD0 && width < 8) { // signed
      found = found << 64 - 8 * width >> 64 - 8 * width;
    }
    return Math.max(found, -1);
  }

  private long unsigned(int width) {
    long found = 0;
    for (int i = 0; i < width; i++) {
      found = found << 8 | data[pos++] & 0xFF;
    }
    return found;
  }

  /** A string; null for anything else, which is passed over. */
  private String string() {
    int code = data[pos] & 0xFF;
    int width = code >= 0xD9 && code <= 0xDB ? 1 << code - 0xD9 : 0;
    if (width == 0 && (code & 0xE0) != 0xA0) {
      skip();
      return null;
    }
    pos++;
    long size = width == 0 ? code & 0x1F : unsigned(width);
    int begin = pos;
    move(size);
    return new String(data, begin, (int) size, StandardCharsets.UTF_8);
  }

  private void move(long size) {
    if (size > data.length - pos) {
      throw new IndexOutOfBoundsException();
    }
    pos += (int) size;
  }

  /** Passes over a value, with all that is in it. */
  private void skip() {
    for (long left = 1; left > 0; left--) {
      left += skipOne();
    }
  }

  /** Passes over a value but for what is in it; how many values that are. */
  private long skipOne() {
    int code = data[pos++] & 0xFF;
    if (code < 0x80 || code >= 0xE0 || code == 0xC0 || code == 0xC2 || code == 0xC3) {
      return 0;
    }
    if (code < 0x90) {
      return 2 * (code & 0x0F);
    }
    if (code < 0xA0) {
      return code & 0x0F;
    }
    if (code < 0xC0) {
      move(code & 0x1F);
      return 0;
    }
    return skipSized(code);
  }

  private long skipSized(int code) {
    switch (code) {
      case 0xC4, 0xC5, 0xC6 -> move(unsigned(1 << code - 0xC4)); // bytes
      case 0xC7, 0xC8, 0xC9 -> move(unsigned(1 << code - 0xC7) + 1); // of a type of its own
      case 0xCA -> move(4);
      case 0xCB -> move(8);
      case 0xCC, 0xCD, 0xCE, 0xCF -> move(1 << code - 0xCC);
      case 0xD0, 0xD1, 0xD2, 0xD3 -> move(1 << code - 0xD0);
      case 0xD4, 0xD5, 0xD6, 0xD7, 0xD8 -> move((1 << code - 0xD4) + 1);
      case 0xD9, 0xDA, 0xDB -> move(unsigned(1 << code - 0xD9));
      case 0xDC, 0xDD -> {
        return unsigned(code == 0xDC ? 2 : 4);
      }
      case 0xDE, 0xDF -> {
        return 2 * unsigned(code == 0xDE ? 2 : 4);
      }
      default -> throw new IndexOutOfBoundsException();
    }
    return 0;
  }
}
