package hadoop

import (
	"maps"
	"strconv"
)

// Hooks are Headroom's hooks inside of Hadoop.
type Hooks struct {
	// Jar is headroom-hadoop.jar.
	Jar string
	// Address is where the scheduler serves them, host:port.
	Address string
	// MasterMB is the memory of an application master, MiB.
	MasterMB int
}

// Plug lets the ResourceManager of a cluster hold queues to their shares.
func (h Hooks) Plug(c *Config) {
	c.Plugins, c.Scheduler = []string{h.Jar}, LiveFairScheduler
	c.Properties = map[string]string{"headroom.url": "http://" + h.Address}
}

// Into gives a job the hook that drops tasks; its own properties win.
func (h Hooks) Into(j Job) Job {
	set := map[string]string{
		"headroom.url": "http://" + h.Address, "mapreduce.framework.name": "yarn-headroom", "headroom.early-stop": "speculator",
		"mapreduce.job.reduce.slowstart.completedmaps": "1.0", "yarn.app.mapreduce.am.resource.mb": strconv.Itoa(h.MasterMB),
	}
	maps.Copy(set, j.Properties)
	j.LibJars, j.Properties = []string{h.Jar}, set
	return j
}
