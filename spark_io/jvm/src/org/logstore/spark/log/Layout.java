package org.logstore.spark.log;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * The layouts of snapshot files, frames and pins ({@code logstore/format.py}). All numbers are
 * little endian.
 */
final class Layout {
  static final int FORMAT_VERSION = 3;
  static final int OLDEST_VERSION = 1;

  static final byte[] SNAPSHOT_MAGIC = {'L', 'G', 'S', 'T', 'S', 'N', 'P', 0};
  static final int SNAPSHOT_HEAD_BYTES = 58;
  static final int BLOCK_HEAD_BYTES = 56;
  static final int ITEM_BYTES = 52;

  static final byte[] PIN_MAGIC = {'L', 'G', 'S', 'T', 'P', 'I', 'N', 0};
  static final int PIN_HEAD_BYTES = 14;

  static final int FRAME_HEAD_BYTES = 32;
  static final int FRAME_KIND_AT = 28;
  static final int FRAME_MARK_AT = 30;
  static final short FRAME_MARK = (short) 0xF5A9;
  static final int KIND_OPEN = 4;
  static final int KIND_NODE = 6;

  /** What stands before the listpack in a frame: stream, master ID, last ID, live entries. */
  static final int NODE_HEAD_BYTES = 44;

  static final long U32 = 0xFFFFFFFFL;

  /** An array is not larger: no JVM promises more. */
  static final int ARRAY_MAX_BYTES = Integer.MAX_VALUE - 16;

  private static final VarHandle SHORT = handle(short[].class);
  private static final VarHandle INT = handle(int[].class);
  private static final VarHandle LONG = handle(long[].class);

  private Layout() {}

  private static VarHandle handle(Class<?> kind) {
    return MethodHandles.byteArrayViewVarHandle(kind, ByteOrder.LITTLE_ENDIAN);
  }

  static short int16(byte[] data, int at) {
    return (short) SHORT.get(data, at);
  }

  static int int32(byte[] data, int at) {
    return (int) INT.get(data, at);
  }

  static long unsigned32(byte[] data, int at) {
    return (int) INT.get(data, at) & U32;
  }

  static long int64(byte[] data, int at) {
    return (long) LONG.get(data, at);
  }

  static void putInt16(byte[] data, int at, int value) {
    SHORT.set(data, at, (short) value);
  }

  static void putInt32(byte[] data, int at, int value) {
    INT.set(data, at, value);
  }

  static void putInt64(byte[] data, int at, long value) {
    LONG.set(data, at, value);
  }

  /** The segment that a position names. */
  static long segmentOf(long position) {
    return position >>> 32;
  }

  /** The offset in its segment that a position names. */
  static long offsetOf(long position) {
    return position & U32;
  }

  /** Whether this reads what a head with this version stands before. */
  static boolean isReadable(int version) {
    return OLDEST_VERSION <= version && version <= FORMAT_VERSION;
  }
}
