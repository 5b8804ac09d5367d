package org.logstore.spark;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.log.Selection;
import org.logstore.spark.log.ShippedPlace;
import org.logstore.spark.log.Split;
import org.logstore.spark.plan.PlannedColumns;
import org.logstore.spark.plan.PlannedSplits;
import org.logstore.spark.plan.Planner;

/**
 * What one load reads: its options and columns, which reader reads it, and its plan.
 *
 * <p>The planner is asked when something is needed, and once.
 */
final class Load {
  /** Schemes of Hadoop whose files cannot be read from a position on. */
  private static final Set<String> WITHOUT_POSITIONS = Set.of("ftp", "http", "https");

  private static final int KEPT_QUERIES = 8;

  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final Planner planner = Planner.ofSession();
  private final Configuration hadoop;

  private String whyPython;
  private PlannedColumns columns;
  private PlannedSplits splits;
  private PythonSource python;
  private final Map<Asked, List<Part>> parts = new LinkedHashMap<>();

  Load(StructType schema, CaseInsensitiveStringMap options, String whyPython) {
    this.schema = schema;
    this.options = options;
    this.whyPython = whyPython;
    hadoop = SparkSession.active().sparkContext().hadoopConfiguration();
  }

  /** All columns of the load. */
  StructType schema() {
    return schema;
  }

  CaseInsensitiveStringMap options() {
    return options;
  }

  Planner planner() {
    return planner;
  }

  /** Hadoop's settings on the driver. */
  Configuration hadoop() {
    return hadoop;
  }

  /** Why the Python source must read; empty if the JVM does. */
  synchronized String whyPython() {
    decide();
    return whyPython;
  }

  /** How the columns of the schema are read; null if the Python source must read. */
  synchronized PlannedColumns columns() {
    decide();
    return columns;
  }

  /** What tasks read; planned at the first call. */
  synchronized PlannedSplits splits() {
    if (splits == null) {
      splits = planner.splits(given(), schema);
    }
    return splits;
  }

  /** What the tasks of a query read. */
  synchronized List<Part> parts(Asked asked) {
    List<Part> found = parts.get(asked);
    if (found == null) {
      found = limited(Parts.of(splits(), selections(asked), planner.cores()), asked.limit());
      if (parts.size() >= KEPT_QUERIES) {
        parts.remove(parts.keySet().iterator().next());
      }
      parts.put(asked, found);
    }
    return found;
  }

  /** How many nodes of the plan the tasks of a query do not look at. */
  synchronized long skipped(Asked asked) {
    List<Part> found = parts.get(asked); // there is none where it was not planned
    long all = found == null ? 0 : splits.splits().stream().mapToLong(Split::nodes).sum();
    return found == null ? 0 : all - found.stream().mapToLong(Part::nodes).sum();
  }

  /** What is read of each split; null: all. */
  private List<Selection> selections(Asked asked) {
    if (!asked.isNarrow()) {
      return null;
    }
    List<Split> all = splits().splits();
    List<Split> told = all.stream().filter(each -> each.blocks().length == 0).toList();
    Iterator<BitSet> nodes = Collections.emptyIterator();
    if (!asked.condition().isEmpty() && !told.isEmpty()) {
      nodes = planner.select(given(), told, asked.condition()).iterator();
    }
    List<Selection> found = new ArrayList<>();
    for (Split each : all) {
      BitSet only = nodes.hasNext() && each.blocks().length == 0 ? nodes.next() : null;
      found.add(new Selection(asked.wanted(), only));
    }
    return found;
  }

  /** Whether every entry is a row, or an error, whatever its values are. */
  boolean givesEachEntry() {
    PlannedColumns found = columns();
    return found.failOnDataLoss() && found.checkedBeside(List.of()).isEmpty();
  }

  /** The first parts, which surely have enough rows. */
  private List<Part> limited(List<Part> found, int limit) {
    if (limit < 0 || !givesEachEntry()) {
      return found;
    }
    long certain = 0;
    int count = 0;
    while (count < found.size() && certain < limit) {
      certain += found.get(count++).certain();
    }
    return found.subList(0, count);
  }

  /** The numbers of the columns of some names; behind those of the schema come those of places. */
  List<Integer> numbers(Set<String> names) {
    List<String> known = new ArrayList<>(Arrays.asList(schema.fieldNames()));
    PlaceColumn.ALL.forEach(each -> known.add(each.name()));
    return IntStream.range(0, known.size())
        .filter(at -> names.contains(known.get(at)) && known.indexOf(known.get(at)) == at)
        .boxed()
        .toList();
  }

  /** The numbers of all columns: those of the schema, and behind them those of places. */
  List<Integer> numbers() {
    Set<String> names = new TreeSet<>(Arrays.asList(schema.fieldNames()));
    PlaceColumn.ALL.forEach(each -> names.add(each.name()));
    return numbers(names);
  }

  /** How a column of a number is read. */
  ColumnSpec column(int number) {
    PlaceColumn place = place(number);
    return place == null ? columns().columns().get(number) : place.spec();
  }

  /** A column of a number, as Spark has it. */
  StructField field(int number) {
    PlaceColumn place = place(number);
    return place == null ? schema.fields()[number] : place.field();
  }

  /** A column that is not in the schema, by its number; null if it is. */
  PlaceColumn place(int number) {
    return number < schema.size() ? null : PlaceColumn.ALL.get(number - schema.size());
  }

  /** The Python source of this load: it keeps what it planned, as the load does. */
  synchronized PythonSource python() {
    if (python == null) {
      python = new PythonSource();
    }
    return python;
  }

  /** The options as they were given. */
  Map<String, String> given() {
    return options.asCaseSensitiveMap();
  }

  private void decide() {
    if (columns != null || !whyPython.isEmpty()) {
      return;
    }
    Planner.Columns found = planner.columns(given(), schema);
    String why = found.whyPython();
    if (why.isEmpty()) {
      why = whyNotHere(found.columns());
      if (!why.isEmpty() && found.columns().mustBeJvm()) {
        throw new LogstoreException(
            "OptionError",
            "option 'reader' is jvm, and " + why + ": leave 'reader' out, and Python reads it");
      }
    }
    whyPython = why;
    columns = why.isEmpty() ? found.columns() : null;
  }

  /** Why the JVM cannot read the stores; empty if it can. */
  private String whyNotHere(PlannedColumns found) {
    for (String store : found.stores()) {
      if (store.contains("://")) {
        String why;
        try {
          why = whyNotAt(new URI(store));
        } catch (URISyntaxException error) {
          why = "a URI is none to Java";
        }
        if (!why.isEmpty()) {
          return why;
        }
      }
    }
    return "";
  }

  private String whyNotAt(URI store) {
    if (store.getRawQuery() != null || store.getRawUserInfo() != null) {
      return "a URI says more than where the store is, which Python understands";
    }
    String scheme = String.valueOf(ShippedPlace.scheme(store, hadoop));
    try {
      if (!WITHOUT_POSITIONS.contains(scheme)) {
        FileSystem.getFileSystemClass(scheme, hadoop);
        return "";
      }
    } catch (IOException | RuntimeException error) {
      // Told below. Hadoop's own settings name classes (s3a) whose jar need not be there.
    }
    return "Hadoop has no file system here for " + scheme + "://";
  }
}
