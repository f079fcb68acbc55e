package webclient

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jcmturner/gokrb5/v8/client"
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"
)

const (
	// retryAfter is how long a KDC that failed is left alone: a wrong key that is tried
	// each second may lock the principal.
	retryAfter = 10 * time.Second
	// wordsMax bounds a quoted error of a KDC or the library, in bytes.
	wordsMax = 300
)

// ticket is a ticket for a service, with what makes authenticators from it.
type ticket struct {
	holder *client.Client // has no session, so no goroutine either
	ticket messages.Ticket
	key    types.EncryptionKey
	got    time.Time
	// renew is when the next one is acquired, ends when this one is of no use.
	renew, ends time.Time
}

// tickets holds the tickets of one principal. It is safe for concurrent use.
type tickets struct {
	who Kerberos

	mu sync.Mutex
	// held are the newest tickets, by service.
	held map[string]*ticket
	// asking are closed when the acquisition in progress has ended, by service.
	asking map[string]chan struct{}
	// failed are the acquisitions that failed last, by service.
	failed map[string]failure
}

type failure struct {
	at  time.Time
	why error
}

func newTickets(who Kerberos) *tickets {
	return &tickets{who: who, held: map[string]*ticket{}, asking: map[string]chan struct{}{}, failed: map[string]failure{}}
}

// header returns the value of an Authorization header for a service. While there is a ticket it
// waits for nobody; without one it waits for the KDC until ctx ends.
func (t *tickets) header(ctx context.Context, service string) (string, error) {
	held, pending, err := t.now(service, time.Now())
	if held == nil && err == nil {
		select {
		case <-pending:
		case <-ctx.Done():
			_, realm := t.who.split()
			return "", waited(ctx, realm)
		}
		held, _, err = t.now(service, time.Now())
	}
	if err != nil {
		return "", err
	}
	if held == nil {
		return "", errNoTicket
	}
	return held.header()
}

// errNoTicket is a ticket that expired as soon as it came.
var errNoTicket = errors.New("the KDC's ticket is already expired; the clocks of this machine and of the KDC differ")

// now returns the ticket that is held, or what to wait for, or why there is none. It has the
// next one acquired where that is due.
func (t *tickets) now(service string, now time.Time) (held *ticket, pending <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held = t.held[service]; held != nil && !now.Before(held.ends) {
		held = nil
	}
	last, failed := t.failed[service]
	resting := failed && now.Sub(last.at) < retryAfter
	if due := held == nil || !now.Before(held.renew); due && !resting && t.asking[service] == nil {
		t.asking[service] = make(chan struct{})
		go t.acquire(service, t.asking[service])
	}
	if held == nil && resting {
		return nil, nil, last.why
	}
	return held, t.asking[service], nil
}

// refused takes over that a server did not accept a ticket: the next request has a new one
// acquired, unless this one is new itself.
func (t *tickets) refused(service string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held := t.held[service]; held != nil && now.Sub(held.got) >= retryAfter {
		delete(t.held, service)
	}
}

// acquire gets a ticket in the background: the library's exchanges know no deadline but
// some seconds for each KDC.
func (t *tickets) acquire(service string, done chan struct{}) {
	got, err := t.who.login(service)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(done)
	delete(t.asking, service)
	if err != nil {
		t.failed[service] = failure{time.Now(), err}
		return
	}
	delete(t.failed, service)
	t.held[service] = got
}

// login gets a ticket for a service with the keytab. The files are read each time, so that
// a new key is used as soon as it is there.
func (k Kerberos) login(service string) (got *ticket, err error) {
	defer func() {
		if recover() != nil { // its text may hold what was being parsed
			got, err = nil, errors.New("kerberos: malformed answer of the KDC, keytab or krb5.conf")
		}
	}()
	conf, err := k.realmConfig()
	if err != nil {
		return nil, err
	}
	key, err := k.key()
	if err != nil {
		return nil, err
	}
	name, realm := k.split()
	c := client.NewWithKeytab(name, realm, key, conf)
	defer c.Destroy() // a referral makes a session, and that a goroutine
	tkt, part, err := exchange(c, conf, realm, service)
	if err != nil {
		return nil, k.explain(err, service)
	}
	now := time.Now()
	life := part.EndTime.Sub(now)
	if life <= 0 {
		return nil, errNoTicket
	}
	return &ticket{
		holder: client.NewWithKeytab(name, realm, keytab.New(), conf), ticket: tkt, key: part.Key,
		got: now, renew: now.Add(life * 4 / 5), ends: part.EndTime,
	}, nil
}

// exchange logs in and gets the ticket for the service, in its own realm where
// [domain_realm] says that it has another one.
func exchange(c *client.Client, conf *krbconfig.Config, realm, service string) (messages.Ticket, messages.EncKDCRepPart, error) {
	ask, err := messages.NewASReqForTGT(realm, conf, c.Credentials.CName())
	if err != nil {
		return messages.Ticket{}, messages.EncKDCRepPart{}, err
	}
	login, err := c.ASExchange(realm, ask, 0)
	if err != nil {
		return messages.Ticket{}, messages.EncKDCRepPart{}, err
	}
	tgt, key := login.Ticket, login.DecryptedEncPart.Key
	if other := conf.ResolveRealm(strings.TrimPrefix(service, "HTTP/")); other != "" && other != realm {
		cross := types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", other}}
		_, rep, err := c.TGSREQGenerateAndExchange(cross, realm, tgt, key, false)
		if err != nil {
			return messages.Ticket{}, messages.EncKDCRepPart{}, err
		}
		realm, tgt, key = other, rep.Ticket, rep.DecryptedEncPart.Key
	}
	_, rep, err := c.TGSREQGenerateAndExchange(types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, service), realm, tgt, key, false)
	return rep.Ticket, rep.DecryptedEncPart, err
}

// header shows the ticket with a fresh authenticator.
func (t *ticket) header() (string, error) {
	init, err := spnego.NewNegTokenInitKRB5(t.holder, t.ticket, t.key)
	if err != nil {
		return "", fmt.Errorf("kerberos: create an authenticator: %s", words(err))
	}
	token := spnego.SPNEGOToken{Init: true, NegTokenInit: init}
	data, err := token.Marshal()
	if err != nil {
		return "", fmt.Errorf("kerberos: create an authenticator: %s", words(err))
	}
	return "Negotiate " + base64.StdEncoding.EncodeToString(data), nil
}

// realmConfig reads krb5.conf. Directives that the library does not know change nothing.
func (k Kerberos) realmConfig() (conf *krbconfig.Config, err error) {
	defer func() {
		if recover() != nil {
			conf, err = nil, fmt.Errorf("%s is malformed", k.Krb5Conf)
		}
	}()
	text, err := read(k.Krb5Conf, false)
	if err != nil {
		return nil, err
	}
	conf, err = krbconfig.NewFromString(string(text))
	if _, unknown := errors.AsType[krbconfig.UnsupportedDirective](err); err != nil && !unknown {
		return nil, fmt.Errorf("%s: %s", k.Krb5Conf, words(err))
	}
	if conf.LibDefaults.DNSLookupKDC {
		return conf, nil
	}
	_, realm := k.split()
	for _, r := range conf.Realms {
		if r.Realm == realm && len(r.KDC) > 0 {
			return conf, nil
		}
	}
	return nil, fmt.Errorf("%s has no kdc for %s, and dns_lookup_kdc is not set", k.Krb5Conf, realm)
}

// key reads the keytab and returns the keys of the principal. What the library says of a
// malformed one is not passed on: it holds the file's bytes.
func (k Kerberos) key() (all *keytab.Keytab, err error) {
	malformed := fmt.Errorf("%s is not a keytab", k.Keytab)
	defer func() {
		if recover() != nil {
			all, err = nil, malformed
		}
	}()
	data, err := read(k.Keytab, true)
	if err != nil {
		return nil, err
	}
	all = keytab.New()
	if all.Unmarshal(data) != nil {
		return nil, malformed
	}
	for _, e := range all.Entries {
		if e.Principal.String() == k.Principal {
			return all, nil
		}
	}
	return nil, fmt.Errorf("%s contains no key of %s", k.Keytab, k.Principal)
}

// explain returns why there is no ticket, with a hint.
func (k Kerberos) explain(err error, service string) error {
	_, realm := k.split()
	text := err.Error()
	for _, known := range []struct{ mark, sentence string }{
		{"KDC_ERR_C_PRINCIPAL_UNKNOWN", fmt.Sprintf("the KDC of %s does not know %s: create the principal, or correct kerberos.principal", realm, k.Principal)},
		{"KDC_ERR_S_PRINCIPAL_UNKNOWN", fmt.Sprintf("the KDC of %s does not know %s: the web address must use the host name of that principal", realm, service)},
		{"KDC_ERR_PREAUTH_FAILED", fmt.Sprintf("the key in %s is not the current one of %s: export the keytab again", k.Keytab, k.Principal)},
		{"keytab incorrect", fmt.Sprintf("the key in %s is not the current one of %s: export the keytab again", k.Keytab, k.Principal)},
		{"key not found in keytab", fmt.Sprintf("%s has no key of %s with the encryption that the KDC requires: export the keytab again", k.Keytab, k.Principal)},
		{"KRB_AP_ERR_SKEW", fmt.Sprintf("this machine's clock and that of the KDC of %s differ by more than Kerberos allows: synchronise both by NTP", realm)},
		{"lock skew", fmt.Sprintf("this machine's clock and that of the KDC of %s differ by more than Kerberos allows: synchronise both by NTP", realm)},
		{"KDC_ERR_CLIENT_REVOKED", fmt.Sprintf("the KDC of %s has locked %s", realm, k.Principal)},
		{"KDC_ERR_NAME_EXP", fmt.Sprintf("the principal %s has expired", k.Principal)},
		{"KDC_ERR_KEY_EXPIRED", fmt.Sprintf("the key of %s has expired", k.Principal)},
		{"Networking_Error", fmt.Sprintf("no KDC of %s reachable: check that it is running and that its address in krb5.conf is right", realm)},
	} {
		if strings.Contains(text, known.mark) {
			return fmt.Errorf("kerberos: %s", known.sentence)
		}
	}
	return fmt.Errorf("kerberos: no ticket for %s: %s", service, words(err))
}

// words returns an error in one bounded line.
func words(err error) string {
	text := strings.ToValidUTF8(strings.Join(strings.Fields(err.Error()), " "), "?")
	if len(text) <= wordsMax {
		return text
	}
	cut := wordsMax
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}
