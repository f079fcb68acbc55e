// Claims, in a resource manager of Hadoop's own tests: nothing that goes wrong with an application that arrives reaches
// Hadoop; a share never passes the operator's maximum, and leaves other resources to him; allocate() takes no lock that Hadoop's
// does not, and an application master's container that comes too early is not lost; pages of applications show our line.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.resourcemanager.MockAM;
import org.apache.hadoop.yarn.server.resourcemanager.MockNM;
import org.apache.hadoop.yarn.server.resourcemanager.MockRM;
import org.apache.hadoop.yarn.server.resourcemanager.MockRMAppSubmissionData;
import org.apache.hadoop.yarn.server.resourcemanager.MockRMAppSubmitter;
import org.apache.hadoop.yarn.server.resourcemanager.placement.ApplicationPlacementContext;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttemptState;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.Allocation;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ContainerUpdates;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.NodeUpdateSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairSchedulerConfiguration;
import org.apache.hadoop.yarn.util.resource.ResourceUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LiveFairSchedulerTest {
  private static final String GPU = "yarn.io/gpu";

  /** Lets a test hold the scheduler's lock. */
  public static final class Held extends LiveFairScheduler {
    void during(CountDownLatch held, CountDownLatch end) throws InterruptedException {
      writeLock.lock();
      try {
        held.countDown();
        end.await();
      } finally {
        writeLock.unlock();
      }
    }
  }

  @TempDir
  Path dir;

  private FakeScheduler headroom;
  private MockRM rm;
  private Held scheduler;

  @BeforeEach
  void start() throws IOException {
    Path file = dir.resolve("fair-scheduler.xml");
    Files.write(file, ("<?xml version=\"1.0\"?><allocations>"
        + "<queue name=\"ml\"><maxResources>memory-mb=81920, vcores=20, yarn.io/gpu=4</maxResources></queue>"
        + "<queue name=\"part\"><maxResources>memory-mb=50%, vcores=50%, yarn.io/gpu=50%</maxResources></queue>"
        + "</allocations>").getBytes(StandardCharsets.UTF_8));
    headroom = new FakeScheduler();
    shares("");
    YarnConfiguration conf = new YarnConfiguration();
    conf.set("yarn.resource-types", GPU);
    conf.setClass(YarnConfiguration.RM_SCHEDULER, Held.class, LiveFairScheduler.class);
    conf.set(FairSchedulerConfiguration.ALLOCATION_FILE, file.toString());
    conf.setLong(FairSchedulerConfiguration.UPDATE_INTERVAL_MS, TimeUnit.HOURS.toMillis(1)); // a test updates itself
    conf.setBoolean("yarn.resourcemanager.webapp.ui-actions.enabled", false);
    conf.set(Settings.URL, headroom.url());
    conf.setInt(Settings.TIMEOUT_MS, 30_000);
    ResourceUtils.resetResourceTypes(conf);
    rm = new MockRM(conf);
    rm.start();
    scheduler = (Held) rm.getResourceScheduler();
  }

  @AfterEach
  void end() {
    rm.stop();
    headroom.close();
    ResourceUtils.resetResourceTypes(new YarnConfiguration());
  }

  private void shares(String queues) {
    shares(queues, "");
  }

  private void shares(String queues, String lines) {
    headroom.answer("/v1/shares", 200, "{\"revision\":1,\"valid_s\":10,\"queues\":[" + queues + "],\"lines\":[" + lines + "]}");
  }

  private static String share(String queue, int mb, int vcores) {
    return "{\"queue\":\"" + queue + "\",\"max_mb\":" + mb + ",\"max_vcores\":" + vcores + ",\"lower\":\"preempt\"}";
  }

  private static void await(String what, BooleanSupplier is) throws InterruptedException {
    for (int i = 0; i < 1200 && !is.getAsBoolean(); i++) {
      Thread.sleep(50);
    }
    assertTrue(is.getAsBoolean(), what);
  }

  private Resource max(String queue) {
    return scheduler.getQueueManager().getQueue(queue).getMaxShare();
  }

  /** An application arrives that answers our question about its tags so. */
  private void arrives(int n, Callable<Set<String>> tags) {
    ApplicationId id = ApplicationId.newInstance(1, n);
    rm.getRMContext().getRMApps().put(id, (RMApp) Proxy.newProxyInstance(RMApp.class.getClassLoader(), new Class<?>[] {RMApp.class},
        (proxy, method, args) -> method.getName().equals("getApplicationTags") ? tags.call() : null));
    try {
      scheduler.handle(new AppAddedSchedulerEvent(id, "root.ml", "ann", new ApplicationPlacementContext("root.ml")));
      assertNotNull(scheduler.getSchedulerApplications().get(id), "Hadoop has it, as it would alone");
    } finally {
      rm.getRMContext().getRMApps().remove(id);
    }
  }

  @Test
  void nothingThatGoesWrongReachesHadoop() {
    arrives(1, () -> null);
    arrives(2, () -> Collections.singleton(null));
    arrives(3, () -> {
      throw new IllegalStateException("our part is wrong");
    });
    arrives(4, () -> {
      throw new NoSuchMethodError("made for another Hadoop");
    });
  }

  @Test
  void theOperatorsMaximaAlwaysBound() throws Exception {
    shares(share("root.ml", 5120, 5));
    await("the share is laid", () -> max("root.ml").getMemorySize() == 5120);
    assertEquals(5, max("root.ml").getVirtualCores());
    assertEquals(4, max("root.ml").getResourceValue(GPU));
    shares(share("root.ml", 100_000, 5));
    await("the operator's memory bounds it", () -> max("root.ml").getMemorySize() == 81920);
    assertEquals(5, max("root.ml").getVirtualCores());
    shares(share("root.ml", 5120, 100));
    await("the operator's vcores bound it", () -> max("root.ml").getMemorySize() == 5120 && max("root.ml").getVirtualCores() == 20);
    assertEquals(4, max("root.ml").getResourceValue(GPU));
    shares("");
    await("the operator's are back", () -> max("root.ml").getMemorySize() == 81920 && max("root.ml").getVirtualCores() == 20);
  }

  /** A maximum in percent is of the cluster as it is now, not as it was when the share came. */
  @Test
  void maximaInPercentGrowWithTheCluster() throws Exception {
    shares(share("root.part", 1024, 1));
    await("the share is laid", () -> scheduler.getQueueManager().getQueue("root.part").getRawMaxShare() instanceof Bounded);
    assertEquals(0, max("root.part").getResourceValue(GPU), "there is no node");
    Resource node = Resource.newInstance(8192, 8);
    node.setResourceValue(GPU, 8);
    rm.registerNode("127.0.0.1:1", node);
    await("its GPUs count", () -> max("root.part").getResourceValue(GPU) == 4);
    assertEquals(1024, max("root.part").getMemorySize());
    assertEquals(1, max("root.part").getVirtualCores());
  }

  private RMApp submit() throws Exception {
    return MockRMAppSubmitter.submit(rm, MockRMAppSubmissionData.Builder.createWithMemory(1024, rm)
        .withAppName("a").withUser("ann").withQueue("root.ml").withUnmanagedAM(false).build());
  }

  private Allocation allocate(ApplicationAttemptId id, List<ResourceRequest> ask, List<String> blacklist) {
    return scheduler.allocate(id, ask, null, new ArrayList<ContainerId>(), blacklist, null, new ContainerUpdates());
  }

  /** The node's heartbeat comes between the taking in of the request and the pulling of new containers. */
  @Test
  void aMastersContainerThatComesEarlyIsNotLost() throws Exception {
    RMApp app = submit();
    ApplicationAttemptId id = app.getCurrentAppAttempt().getAppAttemptId();
    rm.waitForState(id, RMAppAttemptState.SCHEDULED);
    MockNM node = rm.registerNode("127.0.0.1:1", 8192, 8);
    await("the node is there", () -> scheduler.getNumClusterNodes() == 1);
    List<String> meanwhile = new ArrayList<String>() {
      private static final long serialVersionUID = 1L;

      @Override
      public Iterator<String> iterator() {
        scheduler.update();
        scheduler.handle(new NodeUpdateSchedulerEvent(rm.getRMContext().getRMNodes().get(node.getNodeId())));
        return super.iterator();
      }
    };
    List<ResourceRequest> ask = new ArrayList<>();
    ask.add(ResourceRequest.newInstance(Priority.newInstance(0), ResourceRequest.ANY, Resource.newInstance(1024, 1), 1));
    Allocation first = allocate(id, ask, meanwhile);
    assertEquals(0, first.getContainers().size(), "the resource manager ignores what comes with the first answer");
    assertEquals(1, scheduler.getSchedulerApp(id).getLiveContainers().size(), "the heartbeat gave it one");
    rm.waitForState(id, RMAppAttemptState.ALLOCATED);
  }

  @Test
  void allocateTakesNoLockOfTheScheduler() throws Exception {
    RMApp app = submit();
    MockNM node = rm.registerNode("127.0.0.1:1", 8192, 8);
    scheduler.update();
    MockAM am = MockRM.launchAndRegisterAM(app, rm, node);
    CountDownLatch held = new CountDownLatch(1);
    CountDownLatch end = new CountDownLatch(1);
    Thread holder = new Thread(() -> {
      try {
        scheduler.during(held, end);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    });
    holder.start();
    held.await();
    FutureTask<Allocation> heartbeat = new FutureTask<>(() -> allocate(am.getApplicationAttemptId(), new ArrayList<>(), null));
    Thread caller = new Thread(heartbeat);
    caller.setDaemon(true);
    caller.start();
    try {
      assertNotNull(heartbeat.get(30, TimeUnit.SECONDS));
    } finally {
      end.countDown();
      holder.join();
    }
  }

  @Test
  void pagesShowOurLine() throws Exception {
    RMApp app = submit();
    MockNM node = rm.registerNode("127.0.0.1:1", 8192, 8);
    scheduler.update();
    MockRM.launchAndRegisterAM(app, rm, node);
    String line = "Headroom: at most 3 containers";
    shares("", "{\"application\":\"" + app.getApplicationId() + "\",\"line\":\"" + line + "\"}");
    await("its page shows the line", () -> app.getDiagnostics().toString().equals(line));
    shares("");
    await("it is gone", () -> !app.getDiagnostics().toString().contains(line));
    assertFalse(app.getDiagnostics().toString().contains("Headroom"));
  }
}
