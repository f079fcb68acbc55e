package hadoop

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// startHDFS formats and starts the NameNode, starts a DataNode per node and waits until
// the NameNode counts them all. DataNodes have their nodes' host names, so that maps can
// be local to their data.
func (c *Cluster) startHDFS(ctx context.Context) error {
	// Hadoop's jars lack the web pages of HDFS; empty folders on the class path do.
	for _, page := range []string{"hdfs", "datanode"} {
		if err := os.MkdirAll(c.path("conf", "webapps", page), 0o755); err != nil {
			return fmt.Errorf("hadoop: folder of the cluster: %w", err)
		}
	}
	if err := c.tool(ctx, "format", mainNameNode, "-format", "-nonInteractive"); err != nil {
		return err
	}
	if err := c.startDaemon("namenode", c.command("namenode", heapNode, c.classPath(), mainNameNode)); err != nil {
		return err
	}
	for _, n := range c.config.Nodes {
		name := "datanode-" + n.Name
		argv := c.command(name, heapNode, c.classPath(c.path(n.Name, "hdfs")), mainDataNode)
		if err := c.startDaemon(name, n.wrap(argv)); err != nil {
			return err
		}
	}
	type state struct {
		Live int `json:"NumLiveDataNodes"`
	}
	page := "http://" + c.addresses.server(portNameNodeWeb) + "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
	return c.await(ctx, "not all DataNodes are live", func() bool {
		all, err := getFrom[[]state](ctx, page, "beans")
		return err == nil && len(all) > 0 && all[0].Live == len(c.config.Nodes)
	})
}

// writeHDFS writes hdfs-site.xml: one for all, and one per DataNode before it.
func (c *Cluster) writeHDFS() error {
	common := properties{
		"dfs.replication":                                      "1",
		"dfs.permissions.enabled":                              "false",
		"dfs.namenode.name.dir":                                "file://" + c.path("namenode"),
		"dfs.namenode.http-address":                            c.addresses.on(serverHost, portNameNodeWeb),
		"dfs.namenode.safemode.extension":                      "0",
		"dfs.client.use.datanode.hostname":                     "true",
		"dfs.namenode.datanode.registration.ip-hostname-check": "false",
		"dfs.datanode.use.datanode.hostname":                   "true",
		"dfs.datanode.directoryscan.interval":                  "-1",
	}
	errs := []error{c.write(common.xml(), "conf", "hdfs-site.xml")}
	for i, n := range c.config.Nodes {
		port := portDataNode + 3*i
		own := properties{
			"dfs.datanode.hostname":     n.Name,
			"dfs.datanode.data.dir":     "file://" + c.path(n.Name, "data"),
			"dfs.datanode.address":      c.addresses.on(n.Name, port),
			"dfs.datanode.http.address": c.addresses.on(n.Name, port+1),
			"dfs.datanode.ipc.address":  c.addresses.on(n.Name, port+2),
		}
		errs = append(errs, c.write(common.with(own).xml(), n.Name, "hdfs", "hdfs-site.xml"))
	}
	return errors.Join(errs...)
}
