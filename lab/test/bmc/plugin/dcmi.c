/* SPDX-License-Identifier: GPL-2.0-or-later (see test/bmc/LICENSE)
 *
 * DCMI power commands for OpenIPMI's ipmi_sim: loadlib ".../dcmi.so" "DIR".
 *
 * What the BMC measures and what it does wrong are files in DIR, read at every command:
 *   watts      present power; no such file: the measurement is not active
 *   cc_02      completion code of command 0x02 (two hex digits in the name), 0: none
 *   delay_ms   holds every answer up
 *   limit_min, limit_max   the range of limits, in watts
 * The limit is written to DIR/limit whenever it is set or activated.
 *
 * Sources: DCMI v1.5, 6.1 (capabilities), 6.6 (power).
 */
#include <OpenIPMI/mcserv.h>
#include <OpenIPMI/serv.h>
#include <OpenIPMI/ipmi_msgbits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GROUP = 0xdc, INVALID = 0xc1, LENGTH = 0xc7, FIELD = 0xcc, INACTIVE = 0x80, RANGE = 0x84, CORRECTION = 0x85 };

static char dir[256];

static struct {
	unsigned least, most;
	unsigned long long sum, count;
} stats = { .least = 0xffff };

/* The default action switches the server off, as on some real BMCs. */
static struct {
	unsigned action, watts, correction_ms, period_s;
	int set, active;
} limit = { .action = 0x01, .correction_ms = 500, .period_s = 1 };

static long number(const char *name, long otherwise)
{
	char path[320], text[32];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "r");
	if (!f)
		return otherwise;
	if (fgets(text, sizeof text, f))
		otherwise = strtol(text, NULL, 0);
	fclose(f);
	return otherwise;
}

static void put16(unsigned char *to, unsigned v)
{
	to[0] = v;
	to[1] = v >> 8;
}

static void put32(unsigned char *to, unsigned v)
{
	put16(to, v);
	put16(to + 2, v >> 16);
}

static void save_limit(void)
{
	char path[320];
	FILE *f;

	snprintf(path, sizeof path, "%s/limit", dir);
	f = fopen(path, "w");
	if (!f)
		return;
	fprintf(f, "watts=%u active=%d action=%u correction_ms=%u\n", limit.watts, limit.active, limit.action, limit.correction_ms);
	fclose(f);
}

static unsigned capabilities(const unsigned char *d, unsigned n, unsigned char *r, unsigned *len)
{
	static const unsigned char supported[] = { 0, 1, 7 };

	if (n < 1)
		return LENGTH;
	if (d[0] != 1)
		return FIELD;
	put16(r + 2, 0x0501);
	r[4] = 2;
	memcpy(r + 5, supported, sizeof supported);
	*len = 8;
	return 0;
}

static unsigned power_reading(const unsigned char *d, unsigned n, unsigned char *r, unsigned *len)
{
	long w = number("watts", -1);

	if (n < 3)
		return LENGTH;
	if (d[0] != 1)
		return FIELD;
	memset(r + 2, 0, 17);
	if (w >= 0) {
		if (w < stats.least)
			stats.least = w;
		if (w > stats.most)
			stats.most = w;
		stats.sum += w;
		stats.count++;
		put16(r + 2, w);
		put16(r + 4, stats.least);
		put16(r + 6, stats.most);
		put16(r + 8, stats.sum / stats.count);
		r[18] = 0x40;
	}
	put32(r + 10, time(NULL));
	put32(r + 14, 1000);
	*len = 19;
	return 0;
}

static unsigned get_limit(unsigned char *r, unsigned *len)
{
	memset(r + 2, 0, 13);
	r[4] = limit.action;
	put16(r + 5, limit.watts);
	put32(r + 7, limit.correction_ms);
	put16(r + 13, limit.period_s);
	*len = 15;
	return limit.active ? 0 : INACTIVE;
}

static unsigned set_limit(const unsigned char *d, unsigned n)
{
	long w;
	unsigned correction;

	if (n < 14)
		return LENGTH;
	w = d[4] | d[5] << 8;
	correction = d[6] | d[7] << 8 | d[8] << 16 | (unsigned)d[9] << 24;
	if (w < number("limit_min", 50) || w > number("limit_max", 2000))
		return RANGE;
	if (correction < 100)
		return CORRECTION;
	limit.action = d[3];
	limit.watts = w;
	limit.correction_ms = correction;
	limit.period_s = d[12] | d[13] << 8;
	limit.set = 1;
	save_limit();
	return 0;
}

static unsigned activate(const unsigned char *d, unsigned n)
{
	if (n < 3)
		return LENGTH;
	if (!limit.set)
		return INACTIVE;
	limit.active = d[0] == 1;
	save_limit();
	return 0;
}

static void dcmi(lmc_data_t *mc, msg_t *msg, unsigned char *r, unsigned int *len, void *cb)
{
	const unsigned char *d = msg->data;
	unsigned n = msg->len;
	char name[16];
	long delay = number("delay_ms", 0);

	(void)mc;
	(void)cb;
	if (delay > 0)
		usleep(delay * 1000);
	snprintf(name, sizeof name, "cc_%02x", msg->cmd);
	r[1] = GROUP;
	*len = 2;
	r[0] = number(name, 0);
	if (r[0])
		return;
	if (n < 1 || d[0] != GROUP) {
		r[0] = FIELD;
		return;
	}
	d++;
	n--;
	switch (msg->cmd) {
	case 0x01:
		r[0] = capabilities(d, n, r, len);
		break;
	case 0x02:
		r[0] = power_reading(d, n, r, len);
		break;
	case 0x03:
		r[0] = get_limit(r, len);
		break;
	case 0x04:
		r[0] = set_limit(d, n);
		break;
	case 0x05:
		r[0] = activate(d, n);
		break;
	default:
		r[0] = INVALID;
	}
}

int ipmi_sim_module_print_version(sys_data_t *sys, char *options)
{
	(void)sys;
	(void)options;
	printf("dcmi 1\n");
	return 0;
}

int ipmi_sim_module_init(sys_data_t *sys, const char *options)
{
	(void)sys;
	snprintf(dir, sizeof dir, "%s", options ? options : ".");
	ipmi_emu_register_group_extension_handler(GROUP, dcmi, NULL);
	return 0;
}
