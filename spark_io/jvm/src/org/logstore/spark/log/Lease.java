package org.logstore.spark.log;

/** Keeps a pin while somebody reads what it names: renewed at once, and by {@link #keep}. */
final class Lease {
  /** How often in the time of a pin who reads looks at it. */
  private static final int RENEWALS = 10;

  private final PinFile pin;
  private long nextMs;

  /** Renews the pin; SnapshotExpiredError if it is over. */
  Lease(PinFile pin) {
    this.pin = pin;
    this.nextMs = System.currentTimeMillis();
    keep();
  }

  /** Renews the pin if it is time; SnapshotExpiredError if it is over. */
  void keep() {
    long nowMs = System.currentTimeMillis();
    if (nowMs >= nextMs) {
      nextMs = nowMs + Math.max(1, pin.renew(nowMs) / RENEWALS);
    }
  }
}
