package agent

import (
	"errors"

	"headroom/agent/originals"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
)

// What is set beside the cap, for status. A node that only observes shows what stands.

// preferenceRow adds the energy preference to a policy's row.
func (t *tuner) preferenceRow(row *headroomv1.PolicyStatus, p *dvfs.Policy, holding bool) {
	row.EppState = knobLeft
	if _, err := p.EPP(); err != nil {
		row.EppState, row.EppText = closedAs(err), err.Error()
	}
	if t.inUse && holding {
		if err := t.closed[p.Name]; err != nil {
			row.EppState, row.EppText = closedAs(err), err.Error()
		}
		if k := t.byPolicy[p]; k != nil && k.state != "" {
			row.EppState, row.EppText, row.EppRequested = k.state, k.text, k.requested()
		}
	}
}

// turboRow is the machine's turbo switch.
func (t *tuner) turboRow(holding bool) *headroomv1.TurboStatus {
	row := &headroomv1.TurboStatus{State: knobLeft}
	turbo, err := dvfs.OpenTurbo(t.files)
	if err != nil {
		row.State, row.Text = closedAs(err), err.Error()
		return row
	}
	on, err := turbo.Allowed()
	if err = errors.Join(err, turbo.Close()); err != nil {
		row.State, row.Text = knobRefused, err.Error()
		return row
	}
	row.Effective = originals.OnOff(on)
	if t.inUse && holding {
		if err := t.closed[""]; err != nil {
			row.State, row.Text = closedAs(err), err.Error()
		}
		for _, k := range t.knobs {
			if k.policy == nil && k.state != "" {
				row.State, row.Text, row.Requested = k.state, k.text, k.requested()
			}
		}
	}
	return row
}

// requested is what is wanted, in words; "" for nothing.
func (k *knob) requested() string {
	if !k.wished {
		return ""
	}
	return k.Kind.Words(originals.Value{Number: k.want})
}
