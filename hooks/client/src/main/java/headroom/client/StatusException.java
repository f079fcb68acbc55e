package headroom.client;

import java.io.IOException;

/** The scheduler answered with a status other than 200. */
public final class StatusException extends IOException {
  private static final long serialVersionUID = 1;

  public final int status;

  StatusException(String request, int status) {
    super(request + " failed with status " + status);
    this.status = status;
  }
}
