package headroom.apps;

/** A line of PUMA's movie data: {@code movieId:user_rating,user_rating,...}, with ratings from 1 to 5. */
final class Ratings {
  private static final int BINS_PER_STAR = 2;

  private Ratings() {}

  /**
   * The mean of a line's ratings, rounded to the nearest half, upwards between two. NaN for a line that is not of
   * this form or holds no rating; a rating that is none is passed over.
   */
  static double bin(String line) {
    int colon = line.indexOf(':');
    if (colon < 1) {
      return Double.NaN;
    }
    long sum = 0;
    long n = 0;
    for (String review : line.substring(colon + 1).split(",")) {
      int rating = rating(review.trim());
      if (rating > 0) {
        sum += rating;
        n++;
      }
    }
    return n == 0 ? Double.NaN : (double) Math.round((double) sum / n * BINS_PER_STAR) / BINS_PER_STAR;
  }

  private static int rating(String review) {
    int bar = review.lastIndexOf('_');
    if (bar < 0 || bar != review.length() - 2) {
      return 0;
    }
    int rating = review.charAt(bar + 1) - '0';
    return rating >= 1 && rating <= 5 ? rating : 0;
  }
}
