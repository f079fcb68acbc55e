// Package deflation chooses for each priority class the fraction of its tasks that is dropped (the drop ratio theta)
// and when its jobs start to sprint (the timeout T), under bounds on error, latency and energy. It is the task
// deflator of DIAS (Birke et al., section 3.1 and 4), as an answer instead of tables.
//
// The one idea: the queueing model judges every setting, with means in closed form and percentiles in milliseconds,
// so the settings can be searched.
//
//	answer, err := deflation.Choose(problem)
//
// The objective, in this order: the least error (the weighted mean over the classes) of all settings that meet all
// bounds, then the least power, then the least mean latency. Drop ratios that leave as many tasks (or waves) as a
// lower one are not tried.
//
// Guarantees:
//   - by the model, a chosen setting meets every bound;
//   - a looser bound never makes the choice worse;
//   - the same problem has the same answer;
//   - the search and its calls of the model are bounded.
//
// If no setting meets the bounds, the answer has the nearest one and the bounds that it misses. An overload is an
// answer too.
//
// The effect of sprints on a job's time is computed ([Sprint]), and so is what a finite energy budget pays of them
// ([Bucket.Granted]); DIAS left both to an oracle. A sprinted time enters the queue by its moments: mean times of all
// classes stay exact under Poisson arrivals, and percentiles are within 2 % of simulations. If the budget pays only a
// part, sprints count as granted or refused at random; a real budget is empty in busy times, so that mean and 95th
// percentile of the lowest class are up to 10 % too short. Policy [Paper] is DIAS's plain multiplier instead.
//
// The package runs nothing and reads no file or clock.
package deflation
