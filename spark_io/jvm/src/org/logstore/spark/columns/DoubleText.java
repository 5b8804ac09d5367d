package org.logstore.spark.columns;

import java.nio.charset.StandardCharsets;

/**
 * Floating point numbers as Arrow reads them, correctly rounded: decimal digits with a sign or
 * without, a point, an exponent; inf, infinity, nan and nan(word) in any case.
 */
final class DoubleText {
  /** Powers of ten that a double holds exactly. */
  private static final double[] TENS = new double[23];

  static {
    double power = 1;
    for (int i = 0; i < TENS.length; i++) {
      TENS[i] = power;
      power *= 10;
    }
  }

  private static final long EXACT_DOUBLE = 1L << 53;
  private static final long EXACT_FLOAT = 1L << 24;
  private static final int EXACT_FLOAT_POWER = 10;
  private static final int LONG_DIGITS = 19;

  /** Larger exponents are alike: few digits with them are 0 or infinite. */
  private static final int EXPONENT_MOST = 10_000;

  private static final int NO_EXPONENT = Integer.MIN_VALUE;

  /** Bits of a NaN with a minus, as Arrow has it. */
  private static final double MINUS_NAN = Double.longBitsToDouble(0xFFF8L << 48);

  private final boolean isFloat;

  /** What was read last. */
  double value;

  DoubleText(boolean isFloat) {
    this.isFloat = isFloat;
  }

  /** Reads a text; false: it is no number. */
  boolean read(byte[] data, int offset, int length) {
    int end = offset + length;
    int at = offset;
    boolean negative = false;
    if (length > 0 && (data[at] == '-' || data[at] == '+')) {
      negative = data[at] == '-';
      at++;
    }
    int begin = at;
    long digits = 0;
    while (at < end && isDigit(data[at])) {
      digits = digits * 10 + (data[at++] - '0');
    }
    int count = at - begin;
    int scale = 0;
    if (at < end && data[at] == '.') {
      int point = at++;
      while (at < end && isDigit(data[at])) {
        digits = digits * 10 + (data[at++] - '0');
      }
      scale = at - point - 1;
      count += scale;
    }
    if (count == 0) {
      return begin < end && readWord(data, begin, end, negative);
    }
    int exponent = at < end ? exponent(data, at, end) : 0;
    if (exponent == NO_EXPONENT) {
      return false;
    }
    if (count > LONG_DIGITS || !readExactly(digits, exponent - scale)) {
      return readSlowly(data, offset, length);
    }
    if (negative) {
      value = -value;
    }
    return true;
  }

  /** Reads up to 19 digits with a power of ten; false: the nearest number cannot be told here. */
  private boolean readExactly(long digits, int exponent) {
    int power = Math.abs(exponent);
    if (digits == 0) {
      value = 0;
    } else if (isFloat) {
      if (digits < 0 || digits > EXACT_FLOAT || power > EXACT_FLOAT_POWER) {
        return false;
      }
      value = exponent < 0 ? digits / (float) TENS[power] : digits * (float) TENS[power];
    } else if (digits > 0 && digits <= EXACT_DOUBLE && power < TENS.length) {
      value = exponent < 0 ? digits / TENS[power] : digits * TENS[power];
    } else {
      value = NearestDouble.of(digits, exponent);
    }
    return value == value;
  }

  /** The number that decimal digits are. */
  void read(long number) {
    value = isFloat ? (float) number : (double) number;
  }

  private static boolean isDigit(byte one) {
    return one >= '0' && one <= '9';
  }

  private static int exponent(byte[] data, int at, int end) {
    if ((data[at++] | 0x20) != 'e') {
      return NO_EXPONENT;
    }
    boolean negative = at < end && data[at] == '-';
    if (negative || at < end && data[at] == '+') {
      at++;
    }
    if (at == end) {
      return NO_EXPONENT;
    }
    int found = 0;
    for (; at < end; at++) {
      if (!isDigit(data[at])) {
        return NO_EXPONENT;
      }
      found = Math.min(found, EXPONENT_MOST) * 10 + (data[at] - '0');
    }
    return negative ? -found : found;
  }

  private boolean readSlowly(byte[] data, int offset, int length) {
    String text = new String(data, offset, length, StandardCharsets.ISO_8859_1);
    value = isFloat ? Float.parseFloat(text) : Double.parseDouble(text);
    return true;
  }

  private boolean readWord(byte[] data, int at, int end, boolean negative) {
    if (isWord("inf", data, at, end) || isWord("infinity", data, at, end)) {
      value = negative ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY;
      return true;
    }
    value = negative ? MINUS_NAN : Double.NaN;
    if (isWord("nan", data, at, end)) {
      return true;
    }
    if (end - at < 5 || data[at + 3] != '(' || data[end - 1] != ')') {
      return false;
    }
    for (int i = at + 4; i < end - 1; i++) {
      if (!isDigit(data[i]) && !isLetter(data[i]) && data[i] != '_') {
        return false;
      }
    }
    return isWord("nan", data, at, at + 3);
  }

  private static boolean isLetter(byte one) {
    int lower = one | 0x20;
    return lower >= 'a' && lower <= 'z';
  }

  private static boolean isWord(String word, byte[] data, int at, int end) {
    if (end - at != word.length()) {
      return false;
    }
    for (int i = 0; i < word.length(); i++) {
      if ((data[at + i] | 0x20) != word.charAt(i)) {
        return false;
      }
    }
    return true;
  }
}
