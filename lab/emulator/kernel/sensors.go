package kernel

import (
	"math"
	"path"
	"strconv"

	"headroom/lab/emulator/plant"
)

// Where temperatures are.
const (
	hwmonClass   = "sys/class/hwmon"
	thermalClass = "sys/class/thermal"
)

// sensors builds temperatures: hwmon and thermal zones.
func (t *Tree) sensors() {
	if t.shape.Hwmon != "" {
		for socket := range t.shape.sockets() {
			t.hwmon(socket)
		}
	}
	if !t.shape.Zones {
		return
	}
	kind := "x86_pkg_temp"
	if t.shape.Vendor == "" {
		kind = "cpu-thermal"
	}
	for socket := range t.shape.sockets() {
		t.thermalZone(socket, kind, socket, "passive", plant.TempTrip-5)
	}
	t.thermalZone(t.shape.sockets(), "acpitz", 0, "critical", plant.TempTrip+5)
}

// hottest is the temperature of a socket in thousandths of a degree Celsius, in
// whole degrees as the sensors have it.
func (t *Tree) hottest(socket int) func() (string, error) {
	domains := t.plant.Domains()
	first := socket * t.shape.dies()
	return number(func() int64 {
		temp := 0.0
		for _, d := range domains[first : first+t.shape.dies()] {
			temp = math.Max(temp, d.Temperature())
		}
		return milli(temp)
	})
}

func milli(celsius float64) int64 { return int64(math.Floor(celsius)) * 1000 }

// hwmon is the temperature device of one socket.
func (t *Tree) hwmon(socket int) {
	n := strconv.Itoa(socket)
	device := path.Join("sys/devices/platform", t.shape.Hwmon+"."+n)
	if t.shape.Hwmon == "k10temp" {
		device = "sys/devices/pci0000:00/0000:00:" + strconv.FormatInt(int64(24+socket), 16) + ".3"
	}
	dir := path.Join(device, "hwmon/hwmon"+n)
	t.fixed(dir, "name", t.shape.Hwmon)
	t.link(path.Join(hwmonClass, "hwmon"+n), dir)
	t.links[path.Join(dir, "device")] = "../.."
	if t.shape.Hwmon == "k10temp" {
		t.fixed(dir, "temp1_label", "Tctl")
		t.reading(path.Join(dir, "temp1_input"), Slow, t.hottest(socket))
		return
	}
	trip := plant.TempTrip
	t.fixed(dir, "temp1_label", "Package id "+n)
	t.reading(path.Join(dir, "temp1_input"), Slow, t.hottest(socket))
	t.bounds(path.Join(dir, "temp1_"), t.plant.Domains()[socket*t.shape.dies()], trip)
	per := t.plant.Spec().Cores / t.shape.sockets()
	for core := range per {
		d := t.plant.At(socket*per + core)
		name := path.Join(dir, "temp"+strconv.Itoa(core+2)+"_")
		t.fixed(dir, path.Base(name)+"label", "Core "+strconv.Itoa(core))
		t.reading(name+"input", Slow, number(func() int64 { return milli(d.Temperature() - float64(core%3)) }))
		t.bounds(name, d, trip)
	}
}

// bounds are a sensor's fixed limits and its alarm.
func (t *Tree) bounds(name string, d *plant.Domain, trip float64) {
	t.fixed(path.Dir(name), path.Base(name)+"max", format(milli(trip-10)), path.Base(name)+"crit", format(milli(trip)))
	t.reading(name+"crit_alarm", Slow, func() (string, error) { return formatBool(d.Temperature() >= trip), nil })
}

// thermalZone is one zone of the thermal framework with one trip point.
func (t *Tree) thermalZone(n int, kind string, socket int, trip string, at float64) {
	name := "thermal_zone" + strconv.Itoa(n)
	dir := path.Join("sys/devices/virtual/thermal", name)
	t.fixed(dir, "type", kind, "mode", "enabled", "policy", "step_wise", "available_policies", "user_space step_wise ",
		"trip_point_0_type", trip, "trip_point_0_temp", format(milli(at)))
	t.reading(path.Join(dir, "temp"), Slow, t.hottest(socket))
	t.link(path.Join(thermalClass, name), dir)
}
