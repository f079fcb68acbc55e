// Package kdc runs a real Kerberos KDC (MIT, Debian's krb5-kdc) for a test: a realm of its
// own on loopback, with all files in the test's folder.
//
// The one idea: what a client makes of a KDC's refusals is proven against the KDC that
// people run, not against a model of it. Nothing of the machine's own Kerberos is read or
// changed. Only _test.go files import it.
package kdc

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// Realm is the realm of every KDC here.
const Realm = "HEADROOM.TEST"

// ready bounds a start: it takes some 50 ms.
const ready = 30 * time.Second

// KDC is a KDC that a test may stop and start. It ends with the test.
type KDC struct {
	tb   testing.TB
	dir  string
	addr string
	cmd  *exec.Cmd
}

// New makes a realm and starts its KDC. A machine without one does not run the test.
func New(tb testing.TB) *KDC {
	tb.Helper()
	for _, program := range []string{"krb5kdc", "kdb5_util", "kadmin.local"} {
		if _, err := exec.LookPath(at(program)); err != nil {
			testkit.NotRun(tb, program+" is missing (Debian packages krb5-kdc and krb5-admin-server)")
		}
	}
	k := &KDC{tb: tb, dir: tb.TempDir(), addr: free(tb)}
	testkit.WriteFile(tb, k.path("kdc.conf"), fmt.Sprintf(`[kdcdefaults]
  kdc_listen = %[2]s
  kdc_tcp_listen = %[2]s
[realms]
  %[3]s = {
    database_name = %[1]s/principal
    key_stash_file = %[1]s/stash
    acl_file = %[1]s/acl
    max_life = 1h
    max_renewable_life = 0s
    supported_enctypes = aes256-cts:normal aes128-cts:normal
    default_principal_flags = +preauth
  }
[logging]
  kdc = FILE:%[1]s/kdc.log
  default = FILE:%[1]s/other.log
`, k.dir, k.addr, Realm))
	// Over UDP a KDC that is away is noticed after seconds only.
	testkit.WriteFile(tb, k.Conf(), Conf(k.addr))
	k.run("kdb5_util", "create", "-s", "-P", "master", "-r", Realm)
	tb.Cleanup(k.Stop)
	k.Start()
	return k
}

// Conf is a krb5.conf whose realm has its KDC at the address.
func Conf(addr string) string {
	return fmt.Sprintf(`[libdefaults]
  default_realm = %[1]s
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  permitted_enctypes = aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96
[realms]
  %[1]s = {
    kdc = %[2]s
  }
[domain_realm]
  localhost = %[1]s
`, Realm, addr)
}

// free is an address on loopback that nobody listens on.
func free(tb testing.TB) string {
	tb.Helper()
	var lc net.ListenConfig
	l := testkit.Need(lc.Listen(tb.Context(), "tcp", "127.0.0.1:0"))(tb)
	testkit.Check(tb, l.Close())
	return l.Addr().String()
}

// at is where Debian has a program of the KDC; not everybody's PATH leads there.
func at(program string) string {
	const folder = "/usr/sbin"
	if _, err := exec.LookPath(program); err != nil {
		return filepath.Join(folder, program)
	}
	return program
}

func (k *KDC) path(name string) string { return filepath.Join(k.dir, name) }

// Conf is the file krb5.conf for clients.
func (k *KDC) Conf() string { return k.path("krb5.conf") }

func (k *KDC) environment() []string {
	return append(os.Environ(), "KRB5_CONFIG="+k.Conf(), "KRB5_KDC_PROFILE="+k.path("kdc.conf"))
}

func (k *KDC) run(program string, args ...string) {
	k.tb.Helper()
	cmd := exec.CommandContext(k.tb.Context(), at(program), args...)
	cmd.Env = k.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		k.tb.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// Start starts the KDC; options are more arguments of krb5kdc, -T SECONDS for a clock that
// is wrong.
func (k *KDC) Start(options ...string) {
	k.tb.Helper()
	var said bytes.Buffer
	k.cmd = exec.Command(at("krb5kdc"), append([]string{"-n", "-r", Realm, "-P", k.path("pid")}, options...)...) //nolint:noctx // Stop ends it
	k.cmd.Env, k.cmd.Stdout, k.cmd.Stderr = k.environment(), &said, &said
	testkit.Check(k.tb, k.cmd.Start())
	var dialer net.Dialer
	testkit.Eventually(k.tb, ready, "the KDC to listen", func() bool {
		c, err := dialer.DialContext(k.tb.Context(), "tcp", k.addr)
		return err == nil && c.Close() == nil
	})
}

// Stop ends the KDC; its database stays for Start.
func (k *KDC) Stop() {
	if k.cmd == nil {
		return
	}
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait() // killed
	k.cmd = nil
}

// Principal makes a principal with a random key. options are kadmin's: -maxlife "3 seconds".
func (k *KDC) Principal(name string, options ...string) {
	k.tb.Helper()
	k.run("kadmin.local", "-r", Realm, "-q", strings.Join(append(append([]string{"addprinc", "-randkey"}, options...), name), " "))
}

// Keytab writes new keys of the principals, which makes the old ones wrong, and returns the
// keytab's name.
func (k *KDC) Keytab(file string, names ...string) string {
	k.tb.Helper()
	path := k.path(file)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		k.tb.Fatal(err)
	}
	for _, name := range names {
		k.run("kadmin.local", "-r", Realm, "-q", "ktadd -k "+path+" "+name)
	}
	return path
}

// Delete removes a principal.
func (k *KDC) Delete(name string) {
	k.tb.Helper()
	k.run("kadmin.local", "-r", Realm, "-q", "delprinc -force "+name)
}
