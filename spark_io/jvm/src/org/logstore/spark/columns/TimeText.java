package org.logstore.spark.columns;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * Dates and timestamps as Arrow reads them: YYYY-MM-DD, behind it a blank or T, hh, hh:mm or
 * hh:mm:ss with 1 to 9 digits of a second, and Z, +hh, +hhmm or +hh:mm.
 *
 * <p>What is finer than a microsecond is cut off, where all of the time is written. A timestamp
 * without a zone is in UTC; one that has none as its type cannot have one in its text.
 */
final class TimeText extends LongText {
  /** What is read. */
  enum Kind {
    DATE,
    ZONED,
    PLAIN
  }

  private static final int DATE_BYTES = 10;
  private static final int SECOND_BYTES = 19;
  private static final int NANO_BYTES = 29;
  private static final int DAY_S = 86_400;
  private static final int NONE = -1;

  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  /** The text 00:00:00 as a number; its separators, and what added to more than 9 sets a bit. */
  private static final long ZERO_TIME = 0x30303a30303a3030L;

  private static final long SEPARATORS = 0x0000ff0000ff0000L;
  private static final long ABOVE_NINE = 0x7676767676767676L;
  private static final long HIGH_BITS = 0x8080808080808080L;

  private final Kind kind;

  // The day that was read last, as bytes and as seconds since 1970: neighbours are often of a day.
  private long knownMonth;
  private int knownDay;
  private long knownSeconds;

  TimeText(Kind kind) {
    this.kind = kind;
  }

  @Override
  boolean read(long number) {
    return false;
  }

  @Override
  boolean read(byte[] data, int offset, int length) {
    if (length < DATE_BYTES || kind == Kind.DATE && length > DATE_BYTES) {
      return false;
    }
    if (kind == Kind.DATE) {
      return isDay(data, offset);
    }
    long month = (long) LONG.get(data, offset);
    int day = data[offset + 8] << 8 | data[offset + 9] & 0xFF;
    if (month != knownMonth || day != knownDay) {
      if (!isDay(data, offset)) {
        return false;
      }
      knownMonth = month;
      knownDay = day;
      knownSeconds = value * DAY_S;
    }
    long seconds = knownSeconds;
    if (length == DATE_BYTES) {
      value = seconds * 1_000_000;
      return true;
    }
    int separator = data[offset + DATE_BYTES];
    if (separator != ' ' && separator != 'T') {
      return false;
    }
    int size = zoneAt(data, offset, length); // of what is before the zone
    if (size < length) {
      if (kind == Kind.PLAIN) {
        return false;
      }
      int shift = zone(data, offset + size, length - size);
      if (shift == Integer.MIN_VALUE) {
        return false;
      }
      seconds -= shift;
    }
    int ofDay = timeOfDay(data, offset, size);
    if (ofDay == NONE) {
      return false;
    }
    int micros = 0;
    if (size > SECOND_BYTES) {
      micros = micros(data, offset + SECOND_BYTES, size - SECOND_BYTES);
      if (micros == NONE) {
        return false;
      }
    }
    value = (seconds + ofDay) * 1_000_000 + micros;
    return true;
  }

  /** Reads YYYY-MM-DD as days since 1970. */
  private boolean isDay(byte[] data, int at) {
    if (data[at + 4] != '-' || data[at + 7] != '-') {
      return false;
    }
    int century = two(data, at);
    int ofCentury = two(data, at + 2);
    int month = two(data, at + 5);
    int day = two(data, at + 8);
    if ((century | ofCentury | month | day) < 0) {
      return false;
    }
    int year = century * 100 + ofCentury;
    if (month < 1 || month > 12 || day < 1 || day > 28 && day > days(year, month)) {
      return false;
    }
    value = epochDay(year, month, day);
    return true;
  }

  private static int days(int year, int month) {
    if (month == 2) {
      return (year & 3) == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
    }
    return 30 + (month + (month >> 3) & 1);
  }

  /** The days from 1970 on, of a calendar whose years begin with March. */
  private static long epochDay(int year, int month, int day) {
    int shifted = year + 400 - (month < 3 ? 1 : 0); // 400 years are 146,097 days; never negative
    int ofYear = (153 * (month + (month < 3 ? 9 : -3)) + 2) / 5 + day - 1;
    return 365L * shifted
        + shifted / 4
        - shifted / 100
        + shifted / 400
        + ofYear
        - 719_468
        - 146_097;
  }

  /** The size of what stands before the zone; all of it if there is none. */
  private static int zoneAt(byte[] data, int offset, int length) {
    int end = offset + length;
    if (data[end - 1] == 'Z') {
      return length - 1;
    }
    if (isSign(data[end - 3])) {
      return length - 3;
    }
    if (isSign(data[end - 5])) {
      return length - 5;
    }
    return isSign(data[end - 6]) && data[end - 3] == ':' ? length - 6 : length;
  }

  private static boolean isSign(byte one) {
    return one == '+' || one == '-';
  }

  /** Seconds that a zone is ahead of UTC; the least int: it is none. */
  private static int zone(byte[] data, int at, int length) {
    if (length == 1) {
      return 0;
    }
    int hours = two(data, at + 1);
    int minutes = length == 3 ? 0 : two(data, at + length - 2);
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) {
      return Integer.MIN_VALUE;
    }
    int found = hours * 3600 + minutes * 60;
    return data[at] == '+' ? found : -found;
  }

  /** Seconds of hh, hh:mm or hh:mm:ss. */
  private static int timeOfDay(byte[] data, int offset, int size) {
    if (size >= SECOND_BYTES) {
      return size == 20 || size > NANO_BYTES ? NONE : timeOfDay(data, offset + 11);
    }
    if (size != 13 && size != 16) {
      return NONE;
    }
    int hours = two(data, offset + 11);
    int minutes = 0;
    if (size == 16) {
      minutes = data[offset + 13] == ':' ? two(data, offset + 14) : NONE;
    }
    return (hours | minutes) < 0 || hours > 23 || minutes > 59 ? NONE : hours * 3600 + minutes * 60;
  }

  /** Seconds of hh:mm:ss, whose eight bytes are one number. */
  private static int timeOfDay(byte[] data, int at) {
    long digits = (long) LONG.get(data, at) ^ ZERO_TIME;
    if (((digits + ABOVE_NINE | digits) & HIGH_BITS | digits & SEPARATORS) != 0) {
      return NONE;
    }
    int hours = (int) ((digits & 0xF) * 10 + (digits >> 8 & 0xF));
    int minutes = (int) ((digits >> 24 & 0xF) * 10 + (digits >> 32 & 0xF));
    int seconds = (int) ((digits >> 48 & 0xF) * 10 + (digits >> 56));
    return hours > 23 || minutes > 59 || seconds > 59
        ? NONE
        : hours * 3600 + minutes * 60 + seconds;
  }

  /** Microseconds of a point and 1 to 9 digits. */
  private static int micros(byte[] data, int at, int length) {
    if (data[at] != '.') {
      return NONE;
    }
    int found = 0;
    for (int i = 1; i < length; i++) {
      int digit = data[at + i] - '0';
      if (digit < 0 || digit > 9) {
        return NONE;
      }
      if (i < 7) {
        found = found * 10 + digit;
      }
    }
    for (int i = length; i < 7; i++) {
      found *= 10;
    }
    return found;
  }

  /** The number of two digits; below zero: they are none. */
  private static int two(byte[] data, int at) {
    int tens = data[at] - '0';
    int ones = data[at + 1] - '0';
    return (tens | ones | 9 - tens | 9 - ones) < 0 ? NONE : tens * 10 + ones;
  }
}
