package org.logstore.spark.columns;

/** Booleans as Arrow reads them: 0, 1, true, false, in any case. */
final class BooleanText extends LongText {
  @Override
  boolean read(byte[] data, int offset, int length) {
    if (length == 1) {
      value = data[offset] - '0';
      return value >>> 1 == 0;
    }
    value = length == 4 ? 1 : 0;
    return is("true", data, offset, length) || is("false", data, offset, length);
  }

  private static boolean is(String word, byte[] data, int offset, int length) {
    if (length != word.length()) {
      return false;
    }
    for (int i = 0; i < length; i++) {
      if ((data[offset + i] | 0x20) != word.charAt(i)) {
        return false;
      }
    }
    return true;
  }

  @Override
  boolean read(long number) {
    value = number;
    return number >>> 1 == 0;
  }
}
