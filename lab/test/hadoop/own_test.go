// Claim: what passes of Hadoop's own tests of the fair scheduler with Hadoop's class passes with the plug-in in its
// place, preemption, queue managers, the loader of the allocation file and the web pages too. The plug-in queries an
// address without a server, as it does while the scheduler is away.
package hadoop

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/cluster"
	"headroom/lab/hadoop"
)

// rmTests is the package of the ResourceManager's tests.
const rmTests = "org.apache.hadoop.yarn.server.resourcemanager."

// ownClasses are Hadoop's tests that use the fair scheduler, below rmTests. Those that add resource types stand last: types
// stay in the process.
const ownClasses = `
	scheduler.fair.TestFSAppAttempt scheduler.fair.TestFSLeafQueue scheduler.fair.TestSchedulingUpdate
	scheduler.fair.TestFairScheduler scheduler.fair.TestAppRunnability
	scheduler.fair.TestApplicationMasterServiceWithFS scheduler.fair.TestFairSchedulerOvercommit
	scheduler.fair.TestFairSchedulerQueueACLs scheduler.fair.TestMaxRunningAppsEnforcer scheduler.fair.TestFSAppStarvation
	scheduler.fair.TestQueueManager scheduler.fair.TestFSParentQueue scheduler.fair.TestSchedulingPolicy
	scheduler.fair.TestFairSchedulerFairShare scheduler.fair.TestAllocationFileLoaderService
	scheduler.fair.TestFairSchedulerPreemption scheduler.fair.TestQueueManagerRealScheduler scheduler.fair.TestFSQueueMetrics
	scheduler.fair.TestFSSchedulerNode scheduler.fair.policies.TestDominantResourceFairnessPolicy
	scheduler.fair.policies.TestEmptyQueues scheduler.fair.TestComputeFairShares scheduler.fair.TestConfigurableResource
	scheduler.fair.TestFairSchedulerConfiguration scheduler.fair.TestFairSchedulerUtilities
	scheduler.fair.TestQueuePlacementPolicy scheduler.fair.TestVisitedResourceRequestTracker
	TestApplicationMasterServiceFair TestAppManagerWithFairScheduler reservation.TestFairSchedulerPlanFollower
	webapp.TestRMWebAppFairScheduler webapp.dao.TestFairSchedulerQueueInfo webapp.fairscheduler.TestRMWebServicesFairScheduler
	webapp.fairscheduler.TestRMWebServicesFairSchedulerCustomResourceTypes scheduler.fair.TestFairSchedulerWithMultiResourceTypes
	scheduler.fair.TestContinuousScheduling`

// ownExcept are the tests that cannot pass with a class outside of Hadoop's package, and why.
var ownExcept = map[string]string{
	"TestContinuousScheduling.testInterruptedException": "it stubs FairScheduler.attemptScheduling, which is private to its package: Mockito does not reach it in a subclass of another package",
}

func TestHadoopsOwnTestsPass(t *testing.T) {
	testkit.Engines(t, "hadoop "+hadoop.Version)
	root := testkit.Need(filepath.Abs(filepath.Join("..", "..", "..")))(t)
	bin, dir := filepath.Join(root, "bin"), t.TempDir()
	permitted(t, cluster.BuildHooks(t.Context(), root, bin))
	o := &ownTests{T: t, dir: dir, lib: filepath.Join(dir, "lib"), plugin: filepath.Join(bin, "headroom-hadoop.jar")}
	if out, err := exec.CommandContext(t.Context(), "mvn", "-B", "-q", "-f", filepath.Join("own", "pom.xml"), "-Dhadoop.version="+hadoop.Version,
		"dependency:copy-dependencies", "-DoutputDirectory="+o.lib).CombinedOutput(); err != nil {
		permitted(t, fmt.Errorf("%w: Hadoop's tests: %w: %s", hadoop.ErrUnavailable, err, out))
	}
	const live = "headroom.hadoop.LiveFairScheduler"
	theirs, ours := o.run("theirs", "-", strings.Fields(ownClasses)), o.run("ours", live, strings.Fields(ownClasses))
	if again := onlyTheirs(theirs, ours); len(again) > 0 { // some depend on how busy the machine is
		t.Logf("running once more: %v", again)
		maps.Copy(ours, o.run("again", live, again))
	}
	table := map[string]*[3]int{} // by class: tests, passed with Hadoop's, passed with ours
	for test, passed := range theirs {
		class, _, _ := strings.Cut(test, ".")
		n := table[class]
		if n == nil {
			n = &[3]int{}
			table[class] = n
		}
		n[0]++
		if passed {
			n[1]++
		}
		if ours[test] {
			n[2]++
		}
		if why := ownExcept[test]; passed && !ours[test] && why != "" {
			t.Logf("%s does not pass with ours: %s", test, why)
		} else if passed && !ours[test] {
			t.Errorf("%s passes with Hadoop's class, not with ours", test)
		}
	}
	if len(theirs) < 400 {
		t.Errorf("only %d tests ran", len(theirs))
	}
	for _, class := range slices.Sorted(maps.Keys(table)) {
		n := table[class]
		t.Logf("%-50s %3d tests, %3d pass with Hadoop's class, %3d with ours", class, n[0], n[1], n[2])
	}
}

// onlyTheirs returns the classes with tests that passed with Hadoop's scheduler only.
func onlyTheirs(theirs, ours map[string]bool) (classes []string) {
	for class := range strings.FieldsSeq(ownClasses) {
		for test, passed := range theirs {
			if strings.HasPrefix(test, class[strings.LastIndex(class, ".")+1:]+".") && passed && !ours[test] && ownExcept[test] == "" {
				classes = append(classes, class)
				break
			}
		}
	}
	return classes
}

// ownTests are Hadoop's own tests, fetched.
type ownTests struct {
	*testing.T

	dir, lib, plugin string
}

// run runs classes of tests with a scheduler in Hadoop's place ("-" for Hadoop's own), and returns which passed.
func (o *ownTests) run(name, scheduler string, classes []string) map[string]bool {
	o.Helper()
	java := testkit.Need(cluster.Java())(o.T)
	dir := filepath.Join(o.dir, name)
	for _, d := range []string{"target/test-dir", "target/test/data", "target/test-classes", "src/test/resources", "conf"} {
		testkit.Check(o.T, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	tests := filepath.Join(o.lib, "hadoop-yarn-server-resourcemanager-"+hadoop.Version+"-tests.jar")
	repointed := filepath.Join(dir, "tests.jar")
	o.command(dir, java, "-cp", filepath.Join(o.lib, "asm-9.7.jar"), testkit.Need(filepath.Abs(filepath.Join("own", "Repoint.java")))(o.T), tests, repointed, scheduler)
	for _, to := range []string{"target/test-classes", "src/test/resources"} {
		o.command(filepath.Join(dir, to), filepath.Join(filepath.Dir(java), "jar"), "xf", repointed)
	}
	testkit.WriteFile(o, filepath.Join(dir, "conf", "core-site.xml"),
		"<configuration><property><name>headroom.url</name><value>http://127.0.0.1:9</value></property></configuration>")
	testkit.WriteFile(o, filepath.Join(dir, "conf", "log4j.properties"),
		"log4j.rootLogger=ERROR,A\nlog4j.appender.A=org.apache.log4j.varia.NullAppender\n")
	jars := testkit.Need(filepath.Glob(filepath.Join(o.lib, "*.jar")))(o.T)
	jars = slices.DeleteFunc(jars, func(jar string) bool { return jar == tests })
	argv := []string{
		"-Xmx2g", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", "-Djava.io.tmpdir=" + filepath.Join(dir, "target"),
		"-Dtest.build.data=" + filepath.Join(dir, "target", "test", "data"), "-Dtest.build.dir=" + filepath.Join(dir, "target", "test-dir"),
		"-Dhadoop.log.dir=" + filepath.Join(dir, "log"),
	}
	for p := range strings.FieldsSeq("io lang math net text util util.zip util.concurrent") {
		argv = append(argv, "--add-opens=java.base/java."+p+"=ALL-UNNAMED")
	}
	argv = append(argv, "-cp", strings.Join(slices.Concat([]string{filepath.Join(dir, "conf"), filepath.Join(dir, "target", "test-classes"), o.plugin, repointed}, jars), ":"),
		"org.junit.platform.console.ConsoleLauncher", "--disable-banner", "--details=none", "--reports-dir="+filepath.Join(dir, "reports"))
	for _, class := range classes {
		argv = append(argv, "--select-class="+rmTests+class)
	}
	cmd := exec.CommandContext(o.Context(), java, argv...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HADOOP_USER_NAME=tester") // the queue of a user root would be that of all queues
	if err := cmd.Run(); err != nil {
		if _, some := errors.AsType[*exec.ExitError](err); !some { // 1: some tests failed
			o.Fatal(err)
		}
	}
	return o.passed(filepath.Join(dir, "reports", "TEST-junit-vintage.xml"))
}

func (o *ownTests) command(dir, program string, args ...string) {
	o.Helper()
	cmd := exec.CommandContext(o.Context(), program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		o.Fatalf("%s: %v: %s", program, err, out)
	}
}

// passed reads a report: by Class.test whether it passed.
func (o *ownTests) passed(path string) map[string]bool {
	o.Helper()
	var report struct {
		Cases []struct {
			Class   string    `xml:"classname,attr"`
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	testkit.Check(o.T, xml.Unmarshal(testkit.Need(os.ReadFile(path))(o.T), &report))
	all := map[string]bool{}
	for _, c := range report.Cases {
		all[c.Class[strings.LastIndex(c.Class, ".")+1:]+"."+c.Name] = cmp.Or(c.Failure, c.Error, c.Skipped) == nil
	}
	return all
}
