// Package deflation chooses what each priority class gives up and gets: the part of its
// tasks that is dropped (the drop ratio theta) and when its jobs start to sprint (the
// timeout T), under bounds on error, latency and joules. It is the task deflator of DIAS
// (Birke et al., section 3.1 and 4), as an answer instead of tables to read from.
//
// The one idea: every setting is judged by the queueing model, means in closed form and
// percentiles in milliseconds, so the settings can simply be searched.
//
//	answer, err := deflation.Choose(problem)
//
// The objective, in this order: the least error (the mean of the classes' by weight) of all
// settings that keep all bounds, then the least power, then the least mean latency. Drop
// ratios that leave as many tasks (or waves) as a lower one are not tried.
//
// Guarantees: a chosen setting keeps every bound by the model; a looser bound never makes
// the choice worse; the same problem has the same answer; what is looked at and what the
// model is asked is bounded. That no setting keeps the bounds is an answer with the nearest
// one and the bounds that it misses; so is a load that is too high.
//
// What sprints do to a job's time is computed ([Sprint]), as is what a finite budget of
// joules pays of them ([Bucket.Granted]); DIAS left both to an oracle. A sprinted time enters
// the queue by its moments: mean times of all classes stay exact under Poisson arrivals, and
// percentiles are within 2 % of simulations. Where the budget pays only a part, sprints count
// as granted or refused by chance; a real budget runs dry in busy times, so that mean and 95th
// percentile of the lowest class come out up to 10 % too short. Policy [Paper] is DIAS's plain
// multiplier instead.
//
// The package runs nothing and reads no file or clock.
package deflation
