package thermal

import (
	"strconv"
	"strings"

	"headroom/rapl/sysfs"
)

// thermalDir is where the kernel lists its thermal zones
// (driver-api/thermal/sysfs-api.rst).
const thermalDir = "sys/class/thermal"

// TripKind is what the kernel does when a trip is crossed on the way up.
type TripKind string

// Kinds of trip.
const (
	TripActive   TripKind = "active"   // turns a fan up
	TripPassive  TripKind = "passive"  // slows the device down
	TripHot      TripKind = "hot"      // warns
	TripCritical TripKind = "critical" // switches the machine off
)

// Trip is one temperature at which the kernel acts.
type Trip struct {
	// ID is the trip's number in its zone; events name it.
	ID   int
	Kind TripKind
	Temp Temp
}

// Zone is one thermal zone. It is for one goroutine at a time.
type Zone struct {
	// ID is the zone's number; events name it.
	ID int
	// Name is number and type, e.g. "thermal_zone2 x86_pkg_temp".
	Name string
	// Type is the driver's word for what is measured, e.g. "x86_pkg_temp", "acpitz".
	Type string
	// Trips are those with a temperature that makes sense, in the order of their
	// numbers. A trip may be moved by the system; Refresh reads it again.
	Trips []Trip

	attr *sysfs.Attr
}

// read reads the temperature: an error where it cannot be believed, as while a
// zone is disabled.
func (z *Zone) read() (Temp, error) { return readTemp(z.attr) }

// processor reports whether the zone is a processor's.
func (z *Zone) processor() bool {
	return z.Type == "x86_pkg_temp" || z.Type == "TCPU" || strings.HasPrefix(z.Type, "cpu")
}

// tripsMax bounds the trips of one zone, above the kernel's own 12 and 32.
const tripsMax = 64

func (s *Sensors) findZones() error {
	names, err := list(s.root, thermalDir, "thermal_zone", sensorsMax)
	for _, name := range names {
		s.openZone(name)
	}
	return err
}

func (s *Sensors) openZone(name string) {
	dir := join(thermalDir, name)
	kind, err := sysfs.ReadText(s.root, join(dir, "type"))
	if err != nil {
		return
	}
	a, err := s.attr(join(dir, "temp"))
	if err != nil || len(s.zones) >= sensorsMax {
		return
	}
	id, _ := number(name, "thermal_zone")
	z := &Zone{ID: id, Name: name + " " + kind, Type: kind, attr: a}
	for trip := range tripsMax {
		prefix := join(dir, "trip_point_"+strconv.Itoa(trip))
		kind, err := sysfs.ReadText(s.root, prefix+"_type")
		if err != nil {
			break
		}
		// 0 is a trip that nobody has set (x86_pkg_temp).
		if t, known := onceTemp(s.root, prefix+"_temp"); known && t != 0 {
			z.Trips = append(z.Trips, Trip{ID: trip, Kind: TripKind(kind), Temp: t})
		}
	}
	s.zones = append(s.zones, z)
}

// Trip is the trip that an event names, when the zone has it.
func (s *Sensors) Trip(zone, trip int) (Trip, bool) {
	for _, z := range s.zones {
		if z.ID != zone {
			continue
		}
		for _, t := range z.Trips {
			if t.ID == trip {
				return t, true
			}
		}
	}
	return Trip{}, false
}
