package org.logstore.spark.columns;

/**
 * Whole numbers as Arrow reads them: digits, with a minus or without, or {@code 0x} and hexadecimal
 * digits of the number's bits.
 */
final class WholeText extends LongText {
  private static final long TENTH = Long.MAX_VALUE / 10;

  private final int bits;
  private final long most;

  WholeText(int bits) {
    this.bits = bits;
    most = Long.MAX_VALUE >> 64 - bits;
  }

  @Override
  boolean read(byte[] data, int offset, int length) {
    int at = offset;
    int end = offset + length;
    boolean negative = length > 1 && data[at] == '-';
    if (negative) {
      at++;
    } else if (length > 2 && data[at] == '0' && (data[at + 1] | 0x20) == 'x') {
      return readHex(data, at + 2, end);
    }
    if (at == end) {
      return false;
    }
    long found = 0; // negated, as the least number has no positive twin
    for (; at < end; at++) {
      int digit = data[at] - '0';
      if (digit < 0 || digit > 9 || found < -TENTH) {
        return false;
      }
      found = found * 10 - digit;
      if (found > 0) {
        return false;
      }
    }
    if (!negative) {
      if (found == Long.MIN_VALUE) {
        return false;
      }
      found = -found;
    }
    return read(found);
  }

  private boolean readHex(byte[] data, int at, int end) {
    if (4 * (end - at) > bits) {
      return false;
    }
    long found = 0;
    for (; at < end; at++) {
      int digit = data[at] < 0 ? -1 : Character.digit(data[at], 16);
      if (digit < 0) {
        return false;
      }
      found = found << 4 | digit;
    }
    value = found << 64 - bits >> 64 - bits;
    return true;
  }

  @Override
  boolean read(long number) {
    value = number;
    return number <= most && number >= ~most;
  }
}
