package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/ipmi"
)

// bmcWait bounds a BMC query; a BMC that hangs must not delay the other checks.
const bmcWait = 3 * time.Second

// checkBMC checks the BMC: as the running powerd reports it, because a BMC has few
// sessions, or by a query. Nothing is written.
func checkBMC(ctx context.Context, s site) finding {
	switch {
	case s.cfg == nil && s.status == nil:
		return finding{"bmc", checkOK, "no configuration, not checked", ""}
	case s.status != nil:
		return toldBMC(s)
	}
	cfg, err := s.cfg.BMC()
	if err != nil {
		f := finding{"bmc", checkFail, "not queried: " + err.Error(), "ipmi.password_file must contain only the password and be readable only by its owner"}
		if e, ok := errors.AsType[*cli.Error](err); ok {
			f.Hint = e.Hint
		}
		return f
	}
	if cfg.Mode == ipmi.ModeOff {
		text := "not queried: ipmi.mode is " + s.cfg.IPMI.Mode
		if s.cfg.IPMI.Mode != string(ipmi.ModeOff) {
			text += " and root is not /"
		}
		return finding{"bmc", checkOK, text, ""}
	}
	ctx, cancel := context.WithTimeout(ctx, bmcWait)
	defer cancel()
	found, err := ipmi.Look(ctx, cfg)
	if err != nil {
		return silentBMC(cfg, err)
	}
	return foundBMC(found, s.cfg.IPMI.Limit)
}

// silentBMC returns the finding for a BMC that did not answer; in mode auto it may be absent.
func silentBMC(cfg ipmi.Config, err error) finding {
	f := finding{"bmc", checkFail, oneLine(err), "check ipmi.address, and enable IPMI over LAN on the BMC"}
	switch {
	case cfg.Mode == ipmi.ModeAuto && (errors.Is(err, ipmi.ErrAbsent) || errors.Is(err, ipmi.ErrNoReading) && cfg.Source == ipmi.ChoiceAuto):
		f.State, f.Text = checkOK, "none in use: "+f.Text
	case errors.Is(err, ipmi.ErrDenied):
		f.Hint = "check ipmi.user and ipmi.password_file; the BMC must allow IPMI over LAN for this user, with cipher suite 3 or 17"
	case errors.Is(err, ipmi.ErrNoReading):
		f.State, f.Hint = checkWarn, sourceHint
	case errors.Is(err, ipmi.ErrRefused):
		f.State, f.Hint = checkWarn, "a BMC that is busy or has no free session recovers; otherwise run ipmitool mc reset cold"
	case errors.Is(err, ipmi.ErrNoAnswer):
		f.Text = fmt.Sprintf("no answer within %v: %s", bmcWait, f.Text)
		f.Hint += "; if the BMC hangs, ipmitool mc reset cold restarts it and does not affect the host"
	case cfg.Mode != ipmi.ModeLAN:
		f.Hint = "load ipmi_devintf and ipmi_si, and run as a user who may open the device; without a BMC set ipmi.mode: off"
	}
	return f
}

// foundBMC returns the finding for a BMC that answered; keep is ipmi.limit.
func foundBMC(b ipmi.Found, keep bool) finding {
	way := "in-band"
	if b.Suite > 0 {
		way = fmt.Sprintf("over LAN with cipher suite %d", b.Suite)
	}
	power := string(b.Source) + " " + cli.Watts(b.Power)
	if b.Sensors != "" {
		power += " (" + b.Sensors + ")"
	}
	if b.Note != "" {
		power += "; " + b.Note
	}
	if b.Why != "" {
		power = "no wall power: " + b.Why
	}
	f := finding{"bmc", checkOK, power + ", " + way + "; " + limitText(b), ""}
	switch {
	case b.LimitErr == nil && b.Limit.Active && b.Limit.Action == ipmi.ActionPowerOff:
		f.State, f.Hint = checkFail, offHint
	case keep && b.LimitErr != nil:
		f.State, f.Hint = checkFail, "ipmi.limit: true needs operator privilege; set ipmi.limit: false if this BMC has no limit"
	case b.Why != "":
		f.State, f.Hint = checkWarn, sourceHint+"; if the BMC is stuck, run ipmitool mc reset cold"
	case b.LimitErr == nil && b.Limit.Active && b.Limit.Action != ipmi.ActionNone && b.Limit.Action != ipmi.ActionLog:
		f.State, f.Hint = checkWarn, "the vendor's manual describes the action when the limit is exceeded; ipmi.limit: true sets the action to none"
	}
	return f
}

// sourceHint is the hint for a BMC that answers without a usable power reading.
const sourceHint = "powerd uses its model with a margin; set ipmi.source to dcmi, sensors or the name of a watt sensor (ipmitool sdr elist), or ipmi.mode: off"

// offHint is the hint for a limit that powers the machine off.
const offHint = "the BMC powers the machine off when the limit is exceeded: run ipmitool dcmi power deactivate, or set ipmi.limit: true, which sets the action to none"

func limitText(b ipmi.Found) string {
	switch {
	case errors.Is(b.LimitErr, ipmi.ErrNoLimit):
		return "no limit of its own"
	case b.LimitErr != nil:
		return "limit not readable: " + oneLine(b.LimitErr)
	case !b.Limit.Active:
		return "no limit set"
	}
	return fmt.Sprintf("limit %s with exception action %v", cli.Watts(b.Limit.Power), b.Limit.Action)
}

// toldBMC returns the finding as the running powerd reports its BMC.
func toldBMC(s site) finding {
	f := finding{"bmc", checkOK, "powerd reads no BMC", ""}
	var row *headroomv1.SensorStatus
	for _, r := range s.status.GetSensors() {
		if r.GetSource() == string(ipmi.SourceDCMI) || r.GetSource() == string(ipmi.SourceSDR) {
			row = r
		}
	}
	switch {
	case row == nil:
		return f
	case row.GetState() == status.OK:
		f.Text = "powerd reads " + row.GetSource() + " " + watts(row.PowerUw)
		if row.CipherSuite != nil {
			f.Text += fmt.Sprintf(" over LAN with cipher suite %d", row.GetCipherSuite())
		}
		if row.GetText() != "" {
			f.Text += "; " + row.GetText()
		}
	case row.GetState() == string(ipmi.StateAbsent) && (s.cfg == nil || s.cfg.IPMI.Mode == string(ipmi.ModeAuto) || s.cfg.IPMI.Mode == string(ipmi.ModeOff)):
		f.Text = "none: " + row.GetText()
	default:
		f.State, f.Text = checkWarn, fmt.Sprintf("no reading: %s: %s", row.GetState(), row.GetText())
		f.Hint = "see powerd sensor list and ipmi: in powerd.yaml; if the BMC hangs, run ipmitool mc reset cold"
	}
	return toldLimit(f, s)
}

// toldLimit adds the state of the BMC's limit as the running powerd reports it.
func toldLimit(f finding, s site) finding {
	for _, r := range s.status.GetLadder() {
		switch {
		case r.GetRung() != string(ipmi.SourceDCMI) || r.GetText() == "":
		case strings.HasSuffix(r.GetText(), ipmi.ActionPowerOff.String()):
			return finding{f.Check, checkFail, f.Text + "; limit " + r.GetText(), offHint}
		case r.GetState() == "refused" && f.State == checkOK:
			return finding{f.Check, checkWarn, f.Text + "; limit refused: " + r.GetText(), "the cap is enforced without it; set ipmi.limit: false if this BMC has no limit"}
		default:
			f.Text += "; limit: " + r.GetText()
		}
	}
	return f
}
