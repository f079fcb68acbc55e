package thermal

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// EventKind is what the kernel told.
type EventKind string

// Kinds of event. Others that the kernel knows are left out.
const (
	// TripUp: Zone rose above the trip Trip; Temp when the kernel tells it.
	TripUp EventKind = "trip-up"
	// TripDown: Zone fell below the trip Trip.
	TripDown EventKind = "trip-down"
	// TripMoved: the trip Trip of Zone was changed, added or deleted.
	TripMoved EventKind = "trip-moved"
	// Sampled: Zone is at Temp.
	Sampled EventKind = "sampled"
	// Cooling: the cooling device Device went to State, 0 being no cooling at all.
	// Processors are cooled by slowing them down.
	Cooling EventKind = "cooling"
	// Capability: the processor says what CPU can still do (Intel HFI), as it does
	// when heat or power hold it back.
	Capability EventKind = "capability"
	// ZonesChanged: Zone came, went, or was switched on or off.
	ZonesChanged EventKind = "zones-changed"
	// Lost: events came faster than they were read, and some are gone: look at the
	// sensors themselves.
	Lost EventKind = "lost"
)

// Event is one event of the kernel. Its kind determines which fields are set; the
// others are 0.
type Event struct {
	Kind EventKind
	// Zone and Trip are the numbers that Sensors.Trip takes.
	Zone, Trip int
	// Temp is known when HasTemp.
	Temp    Temp
	HasTemp bool
	// Device is a cooling device's number, State how much it cools.
	Device, State int
	// CPU is a processor's number; Performance and Efficiency are from 0 to 1023.
	CPU, Performance, Efficiency int
}

// Throttles reports whether the event by itself tells that a processor is held back
// now: a cooling device at work, or a CPU without any performance left. Whether a
// trip that was crossed does so, its kind says (Sensors.Trip).
func (e Event) Throttles() bool {
	return (e.Kind == Cooling && e.State > 0) || (e.Kind == Capability && e.Performance == 0)
}

// Attributes of the family, include/uapi/linux/thermal.h, enum thermal_genl_attr.
const (
	attrZoneID     = 2
	attrZoneTemp   = 3
	attrTripID     = 5
	attrCoolingID  = 15
	attrCoolingNow = 16
	attrCapability = 20
	attrCPU        = 21
	attrPerform    = 22
	attrEfficiency = 23
)

// Commands of the family: the one sample is 0, events count from 1
// (enum thermal_genl_sampling, enum thermal_genl_event).
const (
	cmdSample = iota
	cmdZoneCreate
	cmdZoneDelete
	cmdZoneDisable
	cmdZoneEnable
	cmdTripUp
	cmdTripDown
	cmdTripChange
	cmdTripAdd
	cmdTripDelete
	cmdCoolingAdd
	cmdCoolingDelete
	cmdCoolingState
	cmdGovernor
	cmdCapability
)

// Sizes of netlink's headers, and the mask that takes the flags off a type.
const (
	genlHeader = 4
	attrHeader = 4
	attrAlign  = 4
	typeMask   = 0x3fff
)

// eventsMax bounds the events of one message: one for each CPU of a package.
const eventsMax = 4096

// parse reads one message of the family without its netlink header. A message of
// an unused kind gives no event; one that lacks a field of its kind is
// ErrMessage.
func parse(data []byte) ([]Event, error) {
	if len(data) < genlHeader {
		return nil, fmt.Errorf("%d bytes: %w", len(data), errMessage)
	}
	cmd, body := data[0], data[genlHeader:]
	kind, needs := meaning(cmd)
	if kind == "" {
		return nil, nil
	}
	if kind == Capability {
		return parseCapability(body)
	}
	e := Event{Kind: kind}
	seen := map[uint16]bool{}
	err := attributes(body, func(typ uint16, value []byte) error {
		if !used(typ) {
			return nil
		}
		v, err := number32(typ, value)
		if err == nil {
			seen[typ] = true
			e = e.with(typ, v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, typ := range needs {
		if !seen[typ] {
			return nil, fmt.Errorf("%s without attribute %d: %w", kind, typ, errMessage)
		}
	}
	return []Event{e.judged()}, nil
}

// meaning is the kind of event that a command stands for, and the attributes that
// it cannot do without.
func meaning(cmd byte) (EventKind, []uint16) {
	switch cmd {
	case cmdSample:
		return Sampled, []uint16{attrZoneID, attrZoneTemp}
	case cmdZoneCreate, cmdZoneDelete, cmdZoneDisable, cmdZoneEnable:
		return ZonesChanged, []uint16{attrZoneID}
	case cmdTripUp:
		return TripUp, []uint16{attrZoneID, attrTripID}
	case cmdTripDown:
		return TripDown, []uint16{attrZoneID, attrTripID}
	case cmdTripChange, cmdTripAdd, cmdTripDelete:
		return TripMoved, []uint16{attrZoneID, attrTripID}
	case cmdCoolingState:
		return Cooling, []uint16{attrCoolingID, attrCoolingNow}
	case cmdCapability:
		return Capability, nil
	}
	return "", nil // cooling devices bound, governors changed, what later kernels add
}

// used reports whether an attribute carries a number that with has a place for.
func used(typ uint16) bool {
	switch typ {
	case attrZoneID, attrZoneTemp, attrTripID, attrCoolingID, attrCoolingNow:
		return true
	}
	return false
}

// with is e with the value of an attribute.
func (e Event) with(typ uint16, v int) Event {
	switch typ {
	case attrZoneID:
		e.Zone = v
	case attrZoneTemp:
		e.Temp, e.HasTemp = Temp(v), true
	case attrTripID:
		e.Trip = v
	case attrCoolingID:
		e.Device = v
	case attrCoolingNow:
		e.State = v
	}
	return e
}

// judged is e without a temperature that cannot be believed.
func (e Event) judged() Event {
	if e.HasTemp && judgeTemp(e.Temp) != nil {
		e.Temp, e.HasTemp = 0, false
	}
	return e
}

// parseCapability reads the triples of CPU, performance and efficiency, which the
// kernel puts one after the other into one nested attribute.
func parseCapability(body []byte) ([]Event, error) {
	var events []Event
	err := attributes(body, func(typ uint16, value []byte) error {
		if typ != attrCapability {
			return nil
		}
		return attributes(value, func(typ uint16, value []byte) error {
			var err error
			events, err = capability(events, typ, value)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}

func capability(events []Event, typ uint16, value []byte) ([]Event, error) {
	if typ != attrCPU && typ != attrPerform && typ != attrEfficiency {
		return events, nil
	}
	v, err := number32(typ, value)
	if err != nil {
		return events, err
	}
	if typ == attrCPU {
		if len(events) == eventsMax {
			return events, fmt.Errorf("more than %d processors: %w", eventsMax, errMessage)
		}
		// Until an event reports it, the CPU counts as not throttled.
		return append(events, Event{Kind: Capability, CPU: v, Performance: capabilityMax, Efficiency: capabilityMax}), nil
	}
	if len(events) == 0 {
		return events, fmt.Errorf("attribute %d before a processor: %w", typ, errMessage)
	}
	last := &events[len(events)-1]
	if typ == attrPerform {
		last.Performance = v
	} else {
		last.Efficiency = v
	}
	return events, nil
}

// capabilityMax is the kernel's scale of performance and efficiency.
const capabilityMax = 1023

// attributes calls each for every attribute of body, in order.
func attributes(body []byte, each func(typ uint16, value []byte) error) error {
	for len(body) > 0 {
		if len(body) < attrHeader {
			// Less than a header can only be padding, which is zero.
			if len(bytes.Trim(body, "\x00")) == 0 {
				return nil
			}
			return fmt.Errorf("%d bytes left over: %w", len(body), errMessage)
		}
		size := int(binary.NativeEndian.Uint16(body))
		typ := binary.NativeEndian.Uint16(body[2:]) & typeMask
		if size < attrHeader || size > len(body) {
			return fmt.Errorf("attribute %d of %d bytes in %d: %w", typ, size, len(body), errMessage)
		}
		if err := each(typ, body[attrHeader:size]); err != nil {
			return err
		}
		body = body[min((size+attrAlign-1)/attrAlign*attrAlign, len(body)):]
	}
	return nil
}

// number32 is the value of a number: the family has 32-bit ones only, which are
// signed where a temperature is meant and small where not.
func number32(typ uint16, value []byte) (int, error) {
	if len(value) != 4 {
		return 0, fmt.Errorf("attribute %d holds %d bytes, not 4: %w", typ, len(value), errMessage)
	}
	v := int(int32(binary.NativeEndian.Uint32(value))) // the kernel's int, passed as u32
	if v < 0 && typ != attrZoneTemp {
		return 0, fmt.Errorf("attribute %d is %d: %w", typ, v, errMessage)
	}
	return v, nil
}
