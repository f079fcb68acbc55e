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

// bmcWait bounds asking a BMC: one that hangs must not hold the other checks up.
const bmcWait = 3 * time.Second

// checkBMC looks what the BMC is good for: by the agent's word where it runs, since
// sessions of a BMC are few, and by asking it elsewhere. Nothing is written.
func checkBMC(ctx context.Context, s site) finding {
	switch {
	case s.cfg == nil && s.status == nil:
		return finding{"bmc", checkOK, "no configuration, not asked", ""}
	case s.status != nil:
		return toldBMC(s)
	}
	cfg, err := s.cfg.BMC()
	if err != nil {
		f := finding{"bmc", checkFail, "not asked: " + err.Error(), "ipmi.password_file must hold the password and nothing else, readable by its owner alone"}
		if e, ok := errors.AsType[*cli.Error](err); ok {
			f.Hint = e.Hint
		}
		return f
	}
	if cfg.Mode == ipmi.ModeOff {
		text := "not asked: ipmi.mode is " + s.cfg.IPMI.Mode
		if s.cfg.IPMI.Mode != string(ipmi.ModeOff) {
			text += ", and the node stands below another root"
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

// silentBMC is a BMC that did not answer. One that was only looked for may be missing.
func silentBMC(cfg ipmi.Config, err error) finding {
	f := finding{"bmc", checkFail, oneLine(err), "see that ipmi.address is that of the BMC, and that the BMC has IPMI over LAN switched on"}
	switch {
	case errors.Is(err, ipmi.ErrAbsent) && cfg.Mode == ipmi.ModeAuto:
		f.State, f.Text = checkOK, "none in use: "+f.Text
	case errors.Is(err, ipmi.ErrDenied):
		f.Hint = "see ipmi.user and ipmi.password_file; the BMC must let that user use IPMI over LAN, with cipher suite 3 or 17"
	case errors.Is(err, ipmi.ErrRefused):
		f.State, f.Hint = checkWarn, "a BMC that is busy, or has no free session, answers again by itself; else ipmitool mc reset cold"
	case errors.Is(err, ipmi.ErrNoAnswer):
		f.Text = fmt.Sprintf("no answer within %v: %s", bmcWait, f.Text)
		f.Hint += "; one that hangs comes back with ipmitool mc reset cold, which leaves the host alone"
	case cfg.Mode != ipmi.ModeLAN:
		f.Hint = "modprobe ipmi_devintf ipmi_si, and run as a user who may open the device; set ipmi.mode: off where there is no BMC"
	}
	return f
}

// foundBMC judges what a BMC answered; keep says that its limit is to be kept.
func foundBMC(b ipmi.Found, keep bool) finding {
	way := "in-band"
	if b.Suite > 0 {
		way = fmt.Sprintf("over LAN with cipher suite %d", b.Suite)
	}
	power := string(b.Source) + " " + cli.Watts(b.Power)
	if b.Sensors != "" {
		power += " (" + b.Sensors + ")"
	}
	if b.Why != "" {
		power = "no wall power: " + b.Why
	}
	f := finding{"bmc", checkOK, power + ", " + way + "; " + limitText(b), ""}
	switch {
	case b.LimitErr == nil && b.Limit.Active && b.Limit.Action == ipmi.ActionPowerOff:
		f.State, f.Hint = checkFail, offHint
	case keep && b.LimitErr != nil:
		f.State, f.Hint = checkFail, "ipmi.limit is true: the user needs the operator's privilege for it; set ipmi.limit: false if this BMC has none"
	case b.Why != "":
		f.State, f.Hint = checkWarn, "powerd goes by its model then, with a margin; a BMC that lies comes back with ipmitool mc reset cold, or set ipmi.mode: off"
	case b.LimitErr == nil && b.Limit.Active && b.Limit.Action != ipmi.ActionNone && b.Limit.Action != ipmi.ActionLog:
		f.State, f.Hint = checkWarn, "see the vendor's manual for what it does when the limit is exceeded; ipmi.limit: true sets it to none"
	}
	return f
}

// offHint is the way out of a limit that takes the machine down.
const offHint = "the machine is switched off when the limit is exceeded: ipmitool dcmi power deactivate, or ipmi.limit: true, which sets the action to none"

func limitText(b ipmi.Found) string {
	switch {
	case errors.Is(b.LimitErr, ipmi.ErrNoLimit):
		return "it has no limit of its own"
	case b.LimitErr != nil:
		return "its limit is not shown: " + oneLine(b.LimitErr)
	case !b.Limit.Active:
		return "no limit is set"
	}
	return fmt.Sprintf("limit %s with exception action %v", cli.Watts(b.Limit.Power), b.Limit.Action)
}

// toldBMC is the running agent's word about its BMC.
func toldBMC(s site) finding {
	f := finding{"bmc", checkOK, "powerd asks none", ""}
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
	case row.GetState() == string(ipmi.StateAbsent) && (s.cfg == nil || s.cfg.IPMI.Mode == string(ipmi.ModeAuto) || s.cfg.IPMI.Mode == string(ipmi.ModeOff)):
		f.Text = "powerd has none: " + row.GetText()
	default:
		f.State, f.Text = checkWarn, fmt.Sprintf("powerd reads none: %s: %s", row.GetState(), row.GetText())
		f.Hint = "powerd sensor list shows it; see ipmi: in powerd.yaml; a BMC that hangs comes back with ipmitool mc reset cold"
	}
	return toldLimit(f, s)
}

// toldLimit adds what the agent says about the BMC's limit.
func toldLimit(f finding, s site) finding {
	for _, r := range s.status.GetLadder() {
		switch {
		case r.GetRung() != string(ipmi.SourceDCMI) || r.GetText() == "":
		case strings.HasSuffix(r.GetText(), ipmi.ActionPowerOff.String()):
			return finding{f.Check, checkFail, f.Text + "; limit " + r.GetText(), offHint}
		case r.GetState() == "refused" && f.State == checkOK:
			return finding{f.Check, checkWarn, f.Text + "; limit refused: " + r.GetText(), "the cap is held without it; set ipmi.limit: false if this BMC has none"}
		default:
			f.Text += "; limit: " + r.GetText()
		}
	}
	return f
}
