package headroom.hadoop;

import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.ConfigurableResource;
import org.apache.hadoop.yarn.util.resource.Resources;

/**
 * The operator's own maximum of a queue, further bounded by a share in memory and vcores. All other resources, such as
 * GPUs, are the operator's. A maximum in percent is of the cluster as it is when asked, as Hadoop has it.
 */
final class Bounded extends ConfigurableResource {
  private final ConfigurableResource own;
  private final long maxMb;
  private final int maxVcores;
  private final Resource floor;
  private final Resource fixed; // null where own is in percent

  /** With a floor that the operator guarantees, which wins over the share. */
  Bounded(ConfigurableResource own, Share share, Resource floor) {
    super((Resource) null);
    this.own = own;
    this.maxMb = share.maxMb;
    this.maxVcores = share.maxVcores;
    this.floor = floor;
    fixed = own.getResource() == null ? null : bound(own.getResource());
  }

  private Resource bound(Resource of) {
    Resource max = Resources.clone(of);
    max.setMemorySize(Math.min(max.getMemorySize(), maxMb));
    max.setVirtualCores(Math.min(max.getVirtualCores(), maxVcores));
    return Resources.componentwiseMax(max, floor);
  }

  @Override
  public Resource getResource(Resource cluster) {
    return fixed != null ? fixed : bound(own.getResource(cluster));
  }

  @Override
  public Resource getResource() {
    return fixed;
  }

  @Override
  public double[] getPercentages() {
    return own.getPercentages();
  }
}
