package org.logstore.spark.columns;

import java.math.BigInteger;

/**
 * Decimal numbers of a precision and a scale: digits with a sign or without, a point, an exponent.
 *
 * <p>A text is of the type if the number that it stands for has no other digits than those that the
 * type keeps. How long the text is, and how large its exponent, does not matter.
 */
final class DecimalText extends LongText {
  /** The most digits of a decimal that is a long. */
  static final int LONG_DIGITS = 18;

  /** Larger exponents are alike: no text has so many digits. */
  private static final int EXPONENT_MOST = Integer.MAX_VALUE / 20;

  private static final long[] TENS = new long[LONG_DIGITS + 1];

  static {
    TENS[0] = 1;
    for (int i = 1; i < TENS.length; i++) {
      TENS[i] = TENS[i - 1] * 10;
    }
  }

  private final int precision;
  private final int scale;
  private final long most; // of the unscaled value as a long

  /** The unscaled value that was read last, if a value may be larger than a long. */
  BigInteger large = BigInteger.ZERO;

  // Of the text that is read: the digits from the first that is not 0 to the last such one; how
  // many there are, more than the precision if they are too many; the power of ten of the last.
  private final byte[] digits;
  private int count;
  private long power;

  DecimalText(int precision, int scale) {
    this.precision = precision;
    this.scale = scale;
    digits = new byte[precision];
    most = TENS[Math.min(precision, LONG_DIGITS)] - 1;
  }

  /** Whether values are longs, and not in {@link #large}. */
  boolean isLong() {
    return precision <= LONG_DIGITS;
  }

  @Override
  boolean read(long number) {
    if (scale <= LONG_DIGITS
        && Math.abs(number) <= most / TENS[scale]
        && number != Long.MIN_VALUE) {
      put(number * TENS[scale]);
      return true;
    }
    byte[] text = Digits.of(number);
    return read(text, 0, text.length);
  }

  @Override
  boolean read(byte[] data, int offset, int length) {
    int end = offset + length;
    return readShort(data, offset, end) || readAny(data, offset, end);
  }

  private void put(long unscaled) {
    value = unscaled;
    if (!isLong()) {
      large = BigInteger.valueOf(unscaled);
    }
  }

  /** Reads a text of few digits, with no more than the scale behind the point, without exponent. */
  private boolean readShort(byte[] data, int at, int end) {
    boolean negative = at < end && data[at] == '-';
    if (negative) {
      at++;
    }
    int size = end - at;
    if (size > LONG_DIGITS) {
      return false;
    }
    long found = 0;
    int point = end - 1;
    for (int i = at; i < end; i++) {
      int digit = data[i] - '0';
      if (digit >= 0 && digit <= 9) {
        found = found * 10 + digit;
      } else if (data[i] == '.' && point == end - 1) {
        point = i;
      } else {
        return false;
      }
    }
    boolean hasPoint = size > 0 && data[point] == '.';
    int zeros = scale - (end - 1 - point);
    if (zeros < 0 || size < (hasPoint ? 2 : 1)) {
      return false;
    }
    if (zeros > LONG_DIGITS || found > most / TENS[zeros]) {
      return false;
    }
    found *= TENS[zeros];
    put(negative ? -found : found);
    return true;
  }

  private boolean readAny(byte[] data, int begin, int end) {
    if (!find(data, begin, end)) {
      return false;
    }
    if (count == 0) {
      put(0);
      return true;
    }
    long zeros = power + scale; // to write behind the digits
    if (zeros < 0 || count + zeros > precision) {
      return false;
    }
    char[] unscaled = new char[count + (int) zeros];
    for (int i = 0; i < unscaled.length; i++) {
      unscaled[i] = i < count ? (char) digits[i] : '0';
    }
    BigInteger found = new BigInteger(new String(unscaled));
    large = data[begin] == '-' ? found.negate() : found;
    value = large.longValue();
    return true;
  }

  /** Finds the digits that count; false: the text is no number. */
  private boolean find(byte[] data, int begin, int end) {
    int at = begin;
    if (at < end && (data[at] == '-' || data[at] == '+')) {
      at++;
    }
    count = 0;
    int seen = 0;
    int last = 0; // how many were seen with the last one that is not 0
    int point = -1; // how many were seen before the point
    for (; at < end; at++) {
      byte one = data[at];
      if (one >= '0' && one <= '9') {
        seen++;
        if (one != '0') {
          keep(one, count == 0 ? 0 : seen - last - 1);
          last = seen;
        }
      } else if (one == '.' && point < 0) {
        point = seen;
      } else {
        break;
      }
    }
    if (seen == 0) {
      return false;
    }
    power = (point < 0 ? seen : point) - last;
    return at == end || addExponent(data, at, end);
  }

  /** Keeps a digit behind some zeros, while there is room. */
  private void keep(byte digit, int zeros) {
    if (count + zeros >= precision) {
      count = precision + 1;
      return;
    }
    for (int i = 0; i < zeros; i++) {
      digits[count++] = '0';
    }
    digits[count++] = digit;
  }

  private boolean addExponent(byte[] data, int at, int end) {
    if ((data[at++] | 0x20) != 'e' || at == end) {
      return false;
    }
    boolean negative = data[at] == '-';
    if (negative || data[at] == '+') {
      at++;
    }
    if (at == end) {
      return false;
    }
    int exponent = 0;
    for (; at < end; at++) {
      int digit = data[at] - '0';
      if (digit < 0 || digit > 9) {
        return false;
      }
      exponent = Math.min(exponent, EXPONENT_MOST) * 10 + digit;
    }
    power += negative ? -exponent : exponent;
    return true;
  }
}
