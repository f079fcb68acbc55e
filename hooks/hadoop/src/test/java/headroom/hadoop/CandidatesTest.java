// Claims: only tasks that wait are named, and those that run once the job has what it promised, where its owner lets it;
// the highest numbers first; none where the floor is reached.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class CandidatesTest {
  private static List<MapTask> tasks(MapTask.State... states) {
    List<MapTask> tasks = new ArrayList<>();
    for (MapTask.State s : states) {
      tasks.add(new MapTask(tasks.size(), 1, s));
    }
    return tasks;
  }

  private static String named(List<MapTask> tasks, Stop stop) {
    return numbers(Candidates.of(tasks, stop, false));
  }

  private static String numbers(List<MapTask> tasks) {
    return tasks.stream().map(t -> String.valueOf(t.number)).collect(Collectors.joining(" "));
  }

  private static Stop stop(boolean inForce, int min, Integer... dropped) {
    return new Stop(inForce, min, new TreeSet<>(Arrays.asList(dropped)), false);
  }

  @Test
  void onlyWhatWaitsIsNamed() {
    List<MapTask> all = tasks(MapTask.State.values());
    assertEquals(String.valueOf(MapTask.State.WAITING.ordinal()), named(all, stop(true, 0)));
  }

  @Test
  void highestNumbersFirst() {
    MapTask.State w = MapTask.State.WAITING;
    List<MapTask> all = tasks(w, MapTask.State.BEGUN, w, w);
    assertEquals("3 2 0", named(all, stop(true, 1)));
    assertEquals("2 0", named(all, stop(true, 1, 3)));
  }

  @Test
  void noneWithoutAStopOrBelowTheFloor() {
    MapTask.State w = MapTask.State.WAITING;
    List<MapTask> all = tasks(w, w, w, w);
    assertEquals("", named(all, stop(false, 0)));
    assertEquals("", named(all, stop(true, 4)));
    assertEquals("", named(all, stop(true, 2, 0, 1)));
    assertEquals("3 2", named(all, stop(true, 1, 0, 1)));
  }

  @Test
  void whatRunsIsNamedOnceTheJobHasWhatItPromised() {
    MapTask.State w = MapTask.State.WAITING;
    List<MapTask> all = tasks(MapTask.State.RESULT, MapTask.State.BEGUN, w, MapTask.State.KILLED);
    for (boolean over : new boolean[] {false, true}) {
      Stop stop = new Stop(true, 1, new TreeSet<>(), over);
      assertEquals("2", named(all, stop));
      assertEquals(over ? "2 1" : "2", numbers(Candidates.of(all, stop, true)));
    }
  }

  @Test
  void aRequestIsBounded() {
    MapTask.State[] states = new MapTask.State[Candidates.MAX + 5];
    Arrays.fill(states, MapTask.State.WAITING);
    List<MapTask> named = Candidates.of(tasks(states), stop(true, 0), false);
    assertEquals(Candidates.MAX, named.size());
    assertEquals(states.length - 1, named.get(0).number);
  }
}
