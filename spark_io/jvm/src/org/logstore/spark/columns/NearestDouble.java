package org.logstore.spark.columns;

import java.math.BigInteger;

/**
 * The double that is nearest to digits with a power of ten, by one multiplication of 128 bits.
 *
 * <p>The method is that of Eisel and Lemire. It tells where it cannot say which double is nearest;
 * then something slower must.
 */
final class NearestDouble {
  /** Powers of ten outside of these are rare. */
  private static final int EXPONENT_MOST = 64;

  // The first 128 bits of each power of ten, the rest of which is cut off.
  private static final long[] HIGH = new long[2 * EXPONENT_MOST + 1];
  private static final long[] LOW = new long[2 * EXPONENT_MOST + 1];

  static {
    for (int exponent = -EXPONENT_MOST; exponent <= EXPONENT_MOST; exponent++) {
      BigInteger power = BigInteger.TEN.pow(Math.abs(exponent));
      BigInteger bits = exponent < 0 ? BigInteger.ONE.shiftLeft(512).divide(power) : power;
      bits = bits.shiftRight(bits.bitLength() - 128);
      HIGH[exponent + EXPONENT_MOST] = bits.shiftRight(64).longValue();
      LOW[exponent + EXPONENT_MOST] = bits.longValue();
    }
  }

  private NearestDouble() {}

  /** The double of unsigned digits that are not 0; NaN: it cannot be told here. */
  static double of(long digits, int exponent) {
    if (exponent < -EXPONENT_MOST || exponent > EXPONENT_MOST) {
      return Double.NaN;
    }
    int zeros = Long.numberOfLeadingZeros(digits);
    long scaled = digits << zeros;
    long high = multiplyHigh(scaled, HIGH[exponent + EXPONENT_MOST]);
    long low = scaled * HIGH[exponent + EXPONENT_MOST];
    if ((high & 0x1FF) == 0x1FF && isLess(low + scaled, scaled)) {
      long more = multiplyHigh(scaled, LOW[exponent + EXPONENT_MOST]);
      long merged = low + more;
      high += isLess(merged, low) ? 1 : 0;
      low = merged;
      if ((high & 0x1FF) == 0x1FF && low == -1) {
        return Double.NaN;
      }
    }
    long top = high >>> 63;
    long mantissa = high >>> top + 9;
    if (low == 0 && (high & 0x1FF) == 0 && (mantissa & 3) == 1) {
      return Double.NaN; // half-way between two
    }
    mantissa = mantissa + (mantissa & 1) >>> 1;
    long binary = (217_706L * exponent >> 16) + 64 + 1023 - zeros - (1 ^ top);
    if (mantissa >>> 53 > 0) {
      mantissa >>>= 1;
      binary++;
    }
    return Double.longBitsToDouble(binary << 52 | mantissa & (1L << 52) - 1);
  }

  private static boolean isLess(long one, long other) {
    return Long.compareUnsigned(one, other) < 0;
  }

  /** The high 64 bits of the product of two unsigned numbers. */
  private static long multiplyHigh(long one, long other) {
    return Math.multiplyHigh(one, other) + (one >> 63 & other) + (other >> 63 & one);
  }
}
