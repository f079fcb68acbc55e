package headroom.client;

import java.io.IOException;

/** The scheduler answered with another status than 200. */
public final class StatusException extends IOException {
  private static final long serialVersionUID = 1;

  public final int status;

  StatusException(String request, int status) {
    super(request + " was answered with status " + status);
    this.status = status;
  }
}
