package org.logstore.spark.log;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BinaryOperator;

/**
 * Which entries are wanted, by stream and ID.
 *
 * <p>Invariant: equal wishes are equal records.
 *
 * @param others the IDs of each stream that is not named
 * @param named the IDs of some streams, by their names as text
 */
public record Wanted(Ids others, Map<String, Ids> named) implements Serializable {
  /** All entries. */
  public static final Wanted ALL = of(Ids.ALL);

  /** No entry. */
  public static final Wanted NONE = of(Ids.NONE);

  /** The same IDs of every stream. */
  public static Wanted of(Ids ids) {
    return new Wanted(ids, Map.of());
  }

  /** All entries of some streams, by their names as text. */
  public static Wanted ofStreams(Set<String> names) {
    Map<String, Ids> named = new HashMap<>();
    names.forEach(each -> named.put(each, Ids.ALL));
    return new Wanted(Ids.NONE, Map.copyOf(named));
  }

  /** What is wanted here and in another. */
  public Wanted and(Wanted other) {
    return with(other, Ids::and);
  }

  /** What is wanted here or in another. */
  public Wanted or(Wanted other) {
    return with(other, Ids::or);
  }

  /** What is not wanted here. */
  public Wanted not() {
    Map<String, Ids> found = new HashMap<>();
    named.forEach((name, ids) -> found.put(name, ids.not()));
    return new Wanted(others.not(), Map.copyOf(found));
  }

  private Wanted with(Wanted other, BinaryOperator<Ids> operation) {
    Set<String> names = new TreeSet<>(named.keySet());
    names.addAll(other.named.keySet());
    Ids rest = operation.apply(others, other.others);
    Map<String, Ids> found = new TreeMap<>();
    for (String name : names) {
      Ids ids = operation.apply(ofText(name), other.ofText(name));
      if (!ids.equals(rest)) {
        found.put(name, ids);
      }
    }
    return new Wanted(rest, Map.copyOf(found));
  }

  private Ids ofText(String name) {
    return named.getOrDefault(name, others);
  }

  /** The IDs of a stream, of which the column for it shows the name as text. */
  Ids of(byte[] name) {
    return named.isEmpty() ? others : ofText(new String(name, StandardCharsets.UTF_8));
  }
}
