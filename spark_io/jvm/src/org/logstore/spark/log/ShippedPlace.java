package org.logstore.spark.log;

import com.fasterxml.jackson.core.JacksonException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.logstore.spark.LogstoreException;

/**
 * The directory that a store was shipped to ({@code logstore.log.shipped}): its objects, and its
 * manifest, which is looked at only where an object is gone.
 *
 * <p>No error shows the secrets of a URI.
 */
public final class ShippedPlace {
  private static final String MANIFEST = "MANIFEST.json";
  private static final int MANIFEST_MAX_BYTES = 256 << 20;

  private final String shown;
  private final FileSystem fs;
  private final Path root;

  ShippedPlace(String uri, Configuration hadoop) {
    shown = ErrorText.shown(uri);
    Configuration known = hadoop == null ? new Configuration() : hadoop;
    URI place = place(uri, known);
    root = new Path(place);
    try {
      fs = FileSystem.get(place, known);
    } catch (UnsupportedFileSystemException exc) {
      throw unknown(exc);
    } catch (IOException | IllegalArgumentException exc) {
      throw failed("opening", exc);
    } catch (RuntimeException exc) { // Hadoop's own settings name a class whose jar is not there
      throw exc.getCause() instanceof ClassNotFoundException ? unknown(exc) : exc;
    }
  }

  private LogstoreException unknown(Exception exc) {
    return new LogstoreException(
        "OptionError",
        shown
            + " is on no file system that this Spark knows: put the jar of its Hadoop connector"
            + " into spark.jars, or give option reader=python",
        exc);
  }

  private URI place(String uri, Configuration known) {
    if (!uri.contains("://")) {
      return new File(uri).getAbsoluteFile().toURI();
    }
    try {
      URI found = new URI(uri);
      if (found.getRawQuery() != null || found.getRawUserInfo() != null) {
        throw new LogstoreException(
            "OptionError",
            shown
                + " is a URI with settings of its own, which Hadoop's file systems do not take:"
                + " give them as spark.hadoop.* and leave them out, or give option reader=python");
      }
      return new URI(scheme(found, known), found.getAuthority(), found.getPath(), null, null);
    } catch (URISyntaxException exc) {
      throw new LogstoreException("OptionError", shown + " is no URI");
    }
  }

  /** What Hadoop calls the scheme of a URI. */
  public static String scheme(URI uri, Configuration hadoop) {
    boolean isS3 = "s3".equals(uri.getScheme()) && hadoop.get("fs.s3.impl") == null;
    return isS3 ? "s3a" : uri.getScheme();
  }

  /** The place without secrets. */
  String shown() {
    return shown;
  }

  /** The error for what failed of the file system. */
  LogstoreException failed(String doing, Exception why) {
    return new LogstoreException(
        "FileSystemError",
        doing + " at " + shown + " failed: " + why + "; try again when it can be reached",
        why);
  }

  /** Opens an object; FileNotFoundException if it is gone. */
  FSDataInputStream open(String sha256) throws IOException {
    return fs.open(new Path(new Path(root, "objects"), sha256));
  }

  /**
   * The object that has a file in the newest state.
   *
   * @return its digest; null if there is no such file, or it is shorter, or the state of another
   *     store
   */
  String newestObject(Split.ShippedObject known, byte[] uuid) {
    JsonNode state = manifest();
    if (state == null || !HexFormat.of().formatHex(uuid).equals(state.path("uuid").asText())) {
      return null;
    }
    for (JsonNode part : state.path("parts")) {
      if (isNewer(part, known)) {
        return part.get(2).asText();
      }
    }
    for (JsonNode old : state.path("kept")) {
      if (isNewer(old.path(0), known)) {
        return old.path(0).get(2).asText();
      }
    }
    return null;
  }

  private static boolean isNewer(JsonNode part, Split.ShippedObject known) {
    return part.path(0).asText().equals(known.path())
        && part.path(1).asLong(-1) >= known.sizeBytes()
        && part.path(2).asText().matches("[0-9a-f]{64}");
  }

  private JsonNode manifest() {
    byte[] data;
    try (InputStream in = fs.open(new Path(root, MANIFEST))) {
      data = in.readNBytes(MANIFEST_MAX_BYTES);
    } catch (FileNotFoundException gone) {
      return null;
    } catch (IOException exc) {
      throw failed("reading the manifest", exc);
    }
    try {
      ObjectMapper json = new ObjectMapper();
      JsonNode outer = json.readTree(data);
      String text = outer.path("manifest").asText();
      if (!sha256(text.getBytes(StandardCharsets.UTF_8)).equals(outer.path("sha256").asText())) {
        throw damaged("its checksum does not fit");
      }
      JsonNode body = json.readTree(text);
      if (!body.path("kind").asText().equals("logstore-shipped")) {
        throw damaged("it is a '" + body.path("kind").asText() + "'");
      }
      if (body.path("version").asLong() > 1) {
        throw new LogstoreException(
            "FormatVersionError",
            shown
                + " was shipped by a newer logstore (manifest version "
                + body.path("version").asLong()
                + "): read it with that");
      }
      return body;
    } catch (JacksonException exc) {
      throw damaged(exc.getOriginalMessage());
    } catch (IOException exc) {
      throw failed("reading the manifest", exc);
    }
  }

  private LogstoreException damaged(String why) {
    return new LogstoreException(
        "CorruptionError",
        MANIFEST
            + " at "
            + shown
            + " is damaged ("
            + why
            + "): ship to a new URI, or delete it and ship again: what is there already is not sent"
            + " again");
  }

  private static String sha256(byte[] data) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
