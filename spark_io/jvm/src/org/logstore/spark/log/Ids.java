package org.logstore.spark.log;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * A set of IDs: closed intervals, in order, with IDs between each two.
 *
 * <p>Invariant: equal sets have equal intervals.
 */
public record Ids(List<Interval> intervals) implements Serializable {
  /** A closed interval. */
  public record Interval(Id start, Id end) implements Serializable {}

  /** Every ID. */
  public static final Ids ALL = of(Id.LEAST, Id.MOST);

  /** No ID. */
  public static final Ids NONE = new Ids(List.of());

  /** Whether it is every ID. */
  boolean isAll() {
    return covers(Id.LEAST, Id.MOST);
  }

  /** The IDs from one to another, both included; none if the end lies before the start. */
  public static Ids of(Id start, Id end) {
    return start.compareTo(end) > 0 ? NONE : new Ids(List.of(new Interval(start, end)));
  }

  /** The IDs that are in one of several sets. */
  public static Ids anyOf(List<Ids> sets) {
    List<Interval> all = new ArrayList<>();
    sets.forEach(each -> all.addAll(each.intervals));
    all.sort(Comparator.comparing(Interval::start));
    List<Interval> found = new ArrayList<>();
    for (Interval each : all) {
      int last = found.size() - 1;
      if (last >= 0 && isBeside(found.get(last).end, each.start)) {
        Id end = Id.max(found.get(last).end, each.end);
        found.set(last, new Interval(found.get(last).start, end));
      } else {
        found.add(each);
      }
    }
    return new Ids(List.copyOf(found));
  }

  private static boolean isBeside(Id end, Id start) {
    return end.equals(Id.MOST) || start.compareTo(end.next()) <= 0;
  }

  /** The IDs that are in this set or in another. */
  public Ids or(Ids other) {
    return anyOf(List.of(this, other));
  }

  /** The IDs that are in both sets. */
  public Ids and(Ids other) {
    List<Interval> found = new ArrayList<>();
    int here = 0;
    int there = 0;
    while (here < intervals.size() && there < other.intervals.size()) {
      Interval one = intervals.get(here);
      Interval two = other.intervals.get(there);
      Id start = Id.max(one.start, two.start);
      Id end = Id.min(one.end, two.end);
      if (start.compareTo(end) <= 0) {
        found.add(new Interval(start, end));
      }
      if (one.end.compareTo(two.end) < 0) {
        here++;
      } else {
        there++;
      }
    }
    return new Ids(List.copyOf(found));
  }

  /** The IDs that are not in this set. */
  public Ids not() {
    List<Interval> found = new ArrayList<>();
    Id from = Id.LEAST;
    for (Interval each : intervals) {
      if (from.compareTo(each.start) < 0) {
        found.add(new Interval(from, each.start.previous()));
      }
      if (each.end.equals(Id.MOST)) {
        return new Ids(List.copyOf(found));
      }
      from = each.end.next();
    }
    found.add(new Interval(from, Id.MOST));
    return new Ids(List.copyOf(found));
  }

  /** The number of the first interval that does not end before an ID. */
  int upFrom(long ms, long seq) {
    int low = 0;
    int high = intervals.size();
    while (low < high) {
      int middle = (low + high) >>> 1;
      Id end = intervals.get(middle).end;
      if (Id.below(end.ms(), end.seq(), ms, seq)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Whether an ID of a closed interval is in the set. */
  boolean meets(Id first, Id last) {
    int at = upFrom(first.ms(), first.seq());
    return at < intervals.size() && intervals.get(at).start.compareTo(last) <= 0;
  }

  /** Whether all IDs of a closed interval are in the set. */
  boolean covers(Id first, Id last) {
    int at = upFrom(first.ms(), first.seq());
    if (at == intervals.size()) {
      return false;
    }
    Interval found = intervals.get(at);
    return found.start.compareTo(first) <= 0 && last.compareTo(found.end) <= 0;
  }
}
