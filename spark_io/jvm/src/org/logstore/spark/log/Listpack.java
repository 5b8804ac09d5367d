package org.logstore.spark.log;

import java.nio.charset.StandardCharsets;

/**
 * Walks over the elements of a listpack, in place.
 *
 * <p>Every read checks its bounds and the back length before it gives an element; whatever is wrong
 * is {@link Damage}, with the text of the compiled codec ({@code logstore/codec/_listpack.pxi}).
 */
final class Listpack {
  static final int HEADER_BYTES = 6;
  private static final byte END_BYTE = (byte) 0xFF;
  private static final byte WIDEST = (byte) 0xF4; // a number of 8 bytes

  private static final String OVERRUN = "an element runs past the end of the listpack";
  private static final String BACKLEN = "an element has a wrong back length";

  private byte[] data = new byte[0];
  private int begin;

  /** The index of the end byte. */
  private int end;

  // The element that was read last.
  private boolean isNumber;
  private long number;
  private int at;
  private int size;
  private int after;

  /** Takes the bytes of a listpack and checks header and end byte. */
  void open(byte[] data, int from, int to) throws Damage {
    int total = to - from;
    if (total <= HEADER_BYTES) {
      throw Damage.ofNode("the listpack is too short to be one");
    }
    if (Layout.int32(data, from) != total) {
      throw Damage.ofNode("the listpack's header tells a wrong number of bytes");
    }
    if (data[to - 1] != END_BYTE) {
      throw Damage.ofNode("the listpack does not end with 0xFF");
    }
    this.data = data;
    this.begin = from;
    this.end = to - 1;
  }

  byte[] data() {
    return data;
  }

  /** The index of the first element. */
  int first() {
    return begin + HEADER_BYTES;
  }

  /** The index of the end byte. */
  int end() {
    return end;
  }

  /** Whether the element is stored as a number. */
  boolean isNumber() {
    return isNumber;
  }

  /** The number that the element is. */
  long number() {
    return number;
  }

  /** Where the bytes of the element that is a string begin. */
  int at() {
    return at;
  }

  /** How many bytes it has. */
  int size() {
    return size;
  }

  /** The index behind the element. */
  int after() {
    return after;
  }

  /** Reads the element at an index; short strings and small numbers at once. */
  void read(int pos) throws Damage {
    if (pos < end) {
      int code = data[pos];
      if (code >= 0) {
        if (data[pos + 1] == 1 && end - pos > 1) {
          isNumber = true;
          number = code;
          after = pos + 2;
          return;
        }
      } else if (code < (byte) 0xC0) {
        int length = code & 0x3F;
        if (length + 1 < end - pos && data[pos + 1 + length] == length + 1) {
          isNumber = false;
          at = pos + 1;
          size = length;
          after = pos + length + 2;
          return;
        }
      } else if (readWide(pos, code)) {
        isNumber = true;
        return;
      }
    }
    readAny(pos);
  }

  /** Reads the number at an index if it is one of 2 to 8 bytes, and sound; whether it is. */
  private boolean readWide(int pos, int code) {
    int width = code == WIDEST ? 8 : code - (byte) 0xF1 + 2;
    if (width < 2
        || code > WIDEST
        || width + 1 >= end - pos
        || data[pos + 1 + width] != width + 1) {
      return false;
    }
    number = wide(pos + 1, width);
    after = pos + width + 2;
    return true;
  }

  private long wide(int from, int width) {
    return switch (width) {
      case 2 -> Layout.int16(data, from);
      case 3 -> data[from + 2] << 16 | Layout.int16(data, from) & 0xFFFF;
      case 4 -> Layout.int32(data, from);
      default -> Layout.int64(data, from);
    };
  }

  /** Checks the element at an index, whatever it is; where the next one begins. */
  int skip(int pos) throws Damage {
    if (pos < end) {
      int code = data[pos];
      if (code < (byte) 0xC0 || code >= 0) {
        int length = code >= 0 ? 1 : 1 + (code & 0x3F);
        if (length < end - pos && data[pos + length] == length) {
          return pos + length + 1;
        }
      }
    }
    readAny(pos);
    return after;
  }

  /** The element at an index, which must be a number, also if it is stored as a string. */
  long integer(int pos) throws Damage {
    if (end - pos > 2) {
      int code = data[pos];
      if (code >= 0) {
        if (data[pos + 1] == 1) {
          after = pos + 2;
          return code;
        }
      } else if ((code & 0xE0) == 0xC0 && data[pos + 2] == 2) {
        after = pos + 3;
        return (code & 0x1F) << 27 >> 19 | data[pos + 1] & 0xFF;
      } else if (readWide(pos, code)) {
        return number;
      }
    }
    readAny(pos);
    return isNumber ? number : parsed();
  }

  /** A number that counts what takes a byte of the node each, at least. */
  int counter(int pos) throws Damage {
    long found = integer(pos);
    if (found < 0 || found > end - begin) {
      throw Damage.ofNode("the node cannot hold as many as one of its counters says");
    }
    return (int) found;
  }

  /** The bytes that the element stands for: of a number its digits. */
  byte[] bytes() {
    if (isNumber) {
      return Long.toString(number).getBytes(StandardCharsets.US_ASCII);
    }
    return java.util.Arrays.copyOfRange(data, at, at + size);
  }

  private void readAny(int pos) throws Damage {
    if (pos >= end) {
      throw Damage.ofNode(OVERRUN);
    }
    int code = data[pos] & 0xFF;
    long length; // of the encoding and the data
    int head = 0;
    if (code < 0x80) {
      length = 1;
    } else if (code < 0xC0) {
      head = 1;
      length = 1 + (code & 0x3F);
    } else if (code < 0xE0) {
      length = 2;
    } else if (code < 0xF0) {
      head = 2;
      length = 2 + ((code & 0x0F) << 8 | data[pos + 1] & 0xFF);
    } else if (code == 0xF0) {
      if (end - pos <= 5) {
        throw Damage.ofNode(OVERRUN);
      }
      head = 5;
      length = 5 + Layout.unsigned32(data, pos + 1);
    } else if (code <= 0xF4) {
      length = code == 0xF4 ? 9 : code - 0xF1 + 3;
    } else {
      throw Damage.ofNode("no element begins so");
    }
    if (length >= end - pos) {
      throw Damage.ofNode(OVERRUN);
    }
    int tail = pos + (int) length;
    after = tail + backBytes(tail, (int) length);
    isNumber = head == 0;
    if (isNumber) {
      number = stored(pos, code, (int) length);
    } else {
      at = pos + head;
      size = (int) length - head;
    }
  }

  private long stored(int pos, int code, int length) {
    if (length == 1) {
      return code;
    }
    if (length == 2) {
      return (code & 0x1F) << 27 >> 19 | data[pos + 1] & 0xFF;
    }
    return wide(pos + 1, length - 1);
  }

  /** How many bytes the back length of an element has, which is checked. */
  private int backBytes(int tail, int length) throws Damage {
    if (length <= 127) {
      if (data[tail] != length) {
        throw Damage.ofNode(BACKLEN);
      }
      return 1;
    }
    int width = length < 16383 ? 2 : length < 2097151 ? 3 : length < 268435455 ? 4 : 5;
    if (isBackLength(tail, width, length)) {
      return width;
    }
    // Valkey's, where Redis writes a byte more.
    boolean disputed = length == 16383 || length == 2097151 || length == 268435455;
    if (disputed && isBackLength(tail, width - 1, length)) {
      return width - 1;
    }
    throw Damage.ofNode(BACKLEN);
  }

  private boolean isBackLength(int tail, int width, int length) {
    if (width > end - tail) {
      return false;
    }
    for (int i = width - 1; i >= 0; i--, length >>>= 7) {
      if ((data[tail + i] & 0xFF) != (i > 0 ? length & 127 | 128 : length & 127)) {
        return false;
      }
    }
    return length == 0;
  }

  /** The number whose canonical decimal form the element's string is. */
  private long parsed() throws Damage {
    if (size > 0 && size <= 20) {
      String text = new String(data, at, size, StandardCharsets.ISO_8859_1);
      try {
        long found = Long.parseLong(text);
        if (Long.toString(found).equals(text)) {
          return found;
        }
      } catch (NumberFormatException none) {
        // said below
      }
    }
    throw Damage.ofNode("an element must be an integer and is not");
  }
}
