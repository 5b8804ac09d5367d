package org.logstore.spark;

import java.nio.charset.StandardCharsets;
import java.util.function.BiConsumer;
import org.logstore.spark.log.EntrySink;
import org.logstore.spark.log.Id;

/** Takes the IDs of entries, and nothing else of them. Only where damage is an error. */
final class IdSink implements EntrySink {
  private final BiConsumer<String, Id> each;
  private String stream = "";

  /** {@code each} is called with the stream, as text, and the ID of each entry. */
  IdSink(BiConsumer<String, Id> each) {
    this.each = each;
  }

  @Override
  public void stream(byte[] name) {
    stream = new String(name, StandardCharsets.UTF_8);
  }

  @Override
  public int field(byte[] data, int offset, int length) {
    return NONE;
  }

  @Override
  public boolean wantsPairs() {
    return false;
  }

  @Override
  public void begin(long ms, long seq, int segment, long nodeOffset) {
    each.accept(stream, new Id(ms, seq));
  }

  @Override
  public void pair(byte[] data, int offset, int length) {}

  @Override
  public void text(int field, byte[] data, int offset, int length) {}

  @Override
  public void number(int field, long value) {}

  @Override
  public void end() {}

  @Override
  public int rows() {
    return 0;
  }

  @Override
  public void backTo(int rows) {}

  @Override
  public boolean isFull() {
    return false;
  }
}
