package hadoop

import (
	"errors"
	"fmt"
	"html"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"headroom/lab/cluster"
)

// properties are one of Hadoop's configuration files.
type properties map[string]string

// with is p with more, which wins.
func (p properties) with(more properties) properties {
	all := properties{}
	maps.Copy(all, p)
	maps.Copy(all, more)
	return all
}

// xml is the file.
func (p properties) xml() []byte {
	var text strings.Builder
	text.WriteString("<?xml version=\"1.0\"?>\n<configuration>\n")
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&text, "  <property><name>%s</name><value>%s</value></property>\n", html.EscapeString(name), html.EscapeString(p[name]))
	}
	text.WriteString("</configuration>\n")
	return []byte(text.String())
}

// logging is log4j's configuration: everything to the standard error, which is the log.
const logging = `log4j.rootLogger=${hadoop.root.logger}
hadoop.root.logger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
`

// writeSite writes what all processes share into conf, and what is a node's own into
// NAME/conf, which stands before it on the node's class path.
func (c *Cluster) writeSite() error {
	hosts, err := c.addresses.hosts(c.config.Nodes)
	if err != nil {
		return err
	}
	errs := []error{
		c.write([]byte(hosts), "hosts"),
		c.write([]byte(logging), "conf", "log4j.properties"),
		c.write(properties{"fs.defaultFS": c.fileSystem(), "hadoop.tmp.dir": c.path("tmp"), "io.file.buffer.size": "65536"}.xml(), "conf", "core-site.xml"),
		c.write(c.yarn().xml(), "conf", "yarn-site.xml"),
		c.write(c.mapReduce().xml(), "conf", "mapred-site.xml"),
		c.write(capacities(c.config.Queues).xml(), "conf", "capacity-scheduler.xml"),
	}
	for _, n := range c.config.Nodes {
		errs = append(errs, c.write(c.yarn().with(c.yarnOn(n)).xml(), n.Name, "conf", "yarn-site.xml"))
	}
	if c.config.HDFS {
		errs = append(errs, c.writeHDFS())
	}
	return errors.Join(append(errs, c.writeQueues(c.config.Queues))...)
}

// write writes a file below the cluster's folder and makes its folder.
func (c *Cluster) write(content []byte, parts ...string) error {
	path := c.path(parts...)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, content, 0o644)
	}
	if err != nil {
		return fmt.Errorf("hadoop: write configuration: %w", err)
	}
	return nil
}

// yarn is yarn-site.xml but for what is a node's own. Where a value differs from
// Hadoop's it is for speed on a small machine, but for the recovery: a ResourceManager
// that is started again goes on with the jobs that it had.
func (c *Cluster) yarn() properties {
	mb, cores := 0, 0 // the most that any node offers
	for _, n := range c.config.Nodes {
		mb, cores = max(mb, n.MemoryMB), max(cores, n.VCores)
	}
	const beat = "200" // ms: how often nodes report and the scheduler looks
	p := properties{
		"yarn.resourcemanager.hostname":                                                 serverHost,
		"yarn.resourcemanager.scheduler.address":                                        c.addresses.on(serverHost, portScheduler),
		"yarn.resourcemanager.resource-tracker.address":                                 c.addresses.on(serverHost, portTracker),
		"yarn.resourcemanager.address":                                                  c.addresses.on(serverHost, portClients),
		"yarn.resourcemanager.admin.address":                                            c.addresses.on(serverHost, portAdmin),
		"yarn.resourcemanager.webapp.address":                                           c.addresses.on(serverHost, portRMWeb),
		"yarn.resourcemanager.scheduler.class":                                          c.config.Scheduler,
		"yarn.resourcemanager.nodemanagers.heartbeat-interval-ms":                       beat,
		"yarn.resourcemanager.am.max-attempts":                                          "2",
		"yarn.resourcemanager.recovery.enabled":                                         "true",
		"yarn.resourcemanager.store.class":                                              "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore",
		"yarn.resourcemanager.fs.state-store.uri":                                       "file://" + c.path("rm", "store"),
		"yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms":              "1000",
		"yarn.resourcemanager.connect.retry-interval.ms":                                "1000",
		"yarn.nm.liveness-monitor.expiry-interval-ms":                                   "20000",
		"yarn.am.liveness-monitor.expiry-interval-ms":                                   "60000",
		"yarn.scheduler.configuration.store.class":                                      "memory", // for the capacity scheduler
		"yarn.scheduler.fair.allocation.file":                                           c.path("conf", "fair-scheduler.xml"),
		"yarn.scheduler.fair.allow-undeclared-pools":                                    "false",
		"yarn.scheduler.fair.user-as-default-queue":                                     "false",
		"yarn.scheduler.fair.update-interval-ms":                                        beat,
		"yarn.scheduler.fair.assignmultiple":                                            "true",
		"yarn.scheduler.fair.dynamic.max.assign":                                        "true",
		"yarn.scheduler.minimum-allocation-mb":                                          "128",
		"yarn.resource-types.memory-mb.increment-allocation":                            "128",
		"yarn.scheduler.maximum-allocation-mb":                                          strconv.Itoa(mb),
		"yarn.scheduler.maximum-allocation-vcores":                                      strconv.Itoa(cores),
		"yarn.nodemanager.aux-services":                                                 "mapreduce_shuffle",
		"yarn.nodemanager.vmem-check-enabled":                                           "false",
		"yarn.nodemanager.pmem-check-enabled":                                           "false",
		"yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
		"yarn.nodemanager.log-container-debug-info.enabled":                             "false",
		"yarn.nodemanager.env-whitelist":                                                "JAVA_HOME,HADOOP_CONF_DIR," + cluster.Mark,
		"yarn.log-aggregation-enable":                                                   "false",
		"yarn.application.classpath":                                                    c.classPath(),
	}
	return p.with(c.config.Properties)
}

// yarnOn is what yarn-site.xml of a node has beside yarn.
func (c *Cluster) yarnOn(n Node) properties {
	return properties{
		"yarn.nodemanager.hostname":                  n.Name,
		"yarn.nodemanager.address":                   c.addresses.on(n.Name, portNode),
		"yarn.nodemanager.localizer.address":         c.addresses.on(n.Name, portLocalizer),
		"yarn.nodemanager.webapp.address":            c.addresses.on(n.Name, portNodeWeb),
		"yarn.nodemanager.collector-service.address": c.addresses.on(n.Name, portCollector),
		"yarn.nodemanager.amrmproxy.address":         c.addresses.on(n.Name, portAMProxy),
		"yarn.nodemanager.resource.memory-mb":        strconv.Itoa(n.MemoryMB),
		"yarn.nodemanager.resource.cpu-vcores":       strconv.Itoa(n.VCores),
		"yarn.nodemanager.local-dirs":                c.path(n.Name, "local"),
		"yarn.nodemanager.log-dirs":                  c.path(n.Name, "log"),
	}
}

func (c *Cluster) mapReduce() properties {
	// The class path is on the command line, the jars first, as the daemons have it.
	options := strings.Join(c.jvm(), " ") + " -cp " + c.classPath() + ":job.jar/job.jar:job.jar/classes:job.jar/lib/*:.:libjars/*:./*"
	// The history's folders must be on the default file system, whatever scheme they name.
	root := c.config.Dir
	if c.config.HDFS {
		root = ""
	}
	return properties{
		"mapreduce.framework.name":                              "yarn",
		"mapreduce.application.classpath":                       c.classPath(),
		"mapreduce.client.libjars.wildcard":                     "false", // on file:// it would localise an empty folder
		"mapreduce.shuffle.port":                                "0",     // the NodeManager reads it here, and only here
		"mapreduce.map.memory.mb":                               "256",
		"mapreduce.map.java.opts":                               "-Xmx128m " + options,
		"mapreduce.map.speculative":                             "false",
		"mapreduce.reduce.memory.mb":                            "256",
		"mapreduce.reduce.java.opts":                            "-Xmx128m " + options,
		"mapreduce.reduce.speculative":                          "false",
		"mapreduce.task.io.sort.mb":                             "16",
		"mapreduce.job.reduce.slowstart.completedmaps":          "0.8",
		"mapreduce.client.submit.file.replication":              "1",
		"mapreduce.client.progressmonitor.pollinterval":         "200",
		"mapreduce.client.completion.pollinterval":              "200",
		"mapreduce.jobhistory.done-dir":                         root + "/history/done",
		"mapreduce.jobhistory.jhist.format":                     "json",
		"mapreduce.jobhistory.intermediate-done-dir":            root + "/history/new",
		"yarn.app.mapreduce.am.staging-dir":                     root + "/staging",
		"yarn.app.mapreduce.am.resource.mb":                     "512",
		"yarn.app.mapreduce.am.command-opts":                    "-Xmx256m " + options,
		"yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": "200",
	}
}

// classPath is what daemons, clients and containers share. The jars stand first, as in the archive of classes; a node's own folders come before what holds for all.
func (c *Cluster) classPath(own ...string) string {
	return strings.Join(slices.Concat([]string{c.config.Jars.classPath}, c.config.Plugins, own, []string{c.path("conf")}), ":")
}

// jvm are the options of every JVM: host names from the cluster's file, and a start that
// is cheap, since most of a small job is starting JVMs.
func (c *Cluster) jvm() []string {
	return []string{
		c.classes, "-Djdk.net.hosts.file=" + c.path("hosts"), "-Djava.net.preferIPv4Stack=true",
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
	}
}
