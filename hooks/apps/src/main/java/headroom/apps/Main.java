package headroom.apps;

import org.apache.hadoop.util.ProgramDriver;

/** Runs an application by its name: {@code hadoop jar headroom-apps.jar NAME ...}. */
public final class Main {
  private Main() {}

  /**
   * Exits with the application's status.
   *
   * @param args the name, and what is the application's
   * @throws Throwable what the application throws
   */
  public static void main(String[] args) throws Throwable {
    ProgramDriver programs = new ProgramDriver();
    programs.addClass("topn", TopN.class, "the N most frequent words of text: topn IN OUT N");
    programs.addClass("histmovies", HistogramMovies.class, "how many movies have which average rating: histmovies IN OUT");
    programs.addClass("pi", Pi.class, "an estimate of pi by the points that were tried: pi MAPS POINTS WORKDIR");
    System.exit(programs.run(args));
  }
}
