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
  public void begin(long ms, long seq, int segment, long nodeOffset) {
    each.accept(stream, new Id(ms, seq));
  }

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
