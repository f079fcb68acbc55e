// Package bench measures the figures Headroom is judged by.
package bench
