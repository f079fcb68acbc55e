package headroom.hadoop;

import java.io.IOException;

/** The scheduler answered with another status than 200. */
final class StatusException extends IOException {
  private static final long serialVersionUID = 1;

  final int status;

  StatusException(String request, int status) {
    super(request + " was answered with status " + status);
    this.status = status;
  }
}
