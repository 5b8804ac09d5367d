package org.logstore.spark;

/** Text in errors, as Python's {@code repr} shows it. */
public final class Repr {
  private Repr() {}

  /** A text in quotes, in which nothing is left that does not print. */
  public static String of(String text) {
    char quote = text.indexOf('\'') >= 0 && text.indexOf('"') < 0 ? '"' : '\'';
    StringBuilder found = new StringBuilder().append(quote);
    text.codePoints().forEach(one -> add(found, one, quote));
    return found.append(quote).toString();
  }

  private static void add(StringBuilder to, int one, char quote) {
    if (one == quote || one == '\\') {
      to.append('\\').append((char) one);
    } else if (one == '\n') {
      to.append("\\n");
    } else if (one == '\r') {
      to.append("\\r");
    } else if (one == '\t') {
      to.append("\\t");
    } else if (prints(one)) {
      to.appendCodePoint(one);
    } else {
      String form = one < 0x100 ? "\\x%02x" : one < 0x10000 ? "\\u%04x" : "\\U%08x";
      to.append(String.format(form, one));
    }
  }

  private static boolean prints(int one) {
    return switch (Character.getType(one)) {
      case Character.CONTROL,
              Character.FORMAT,
              Character.SURROGATE,
              Character.PRIVATE_USE,
              Character.UNASSIGNED,
              Character.LINE_SEPARATOR,
              Character.PARAGRAPH_SEPARATOR ->
          false;
      case Character.SPACE_SEPARATOR -> one == ' ';
      default -> true;
    };
  }
}
