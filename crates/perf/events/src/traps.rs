//! The traps of `perf_event_open`, what this crate does about each, and the test that shows it.
//!
//! `B` are defects of an earlier library for self-profiling, facebook's libperfevents; `T` are the kernel's own. Tests
//! are in `tests/` and in the modules named; each runs as root and, where it says so, again without privileges.
//!
//! # Defects not to repeat
//! | | Defect | Here | Test |
//! |---|---|---|---|
//! | B1 | bits of read formats mixed up with those of sample types | separate types: [`ReadFormat`](crate::ReadFormat), [`SampleType`](crate::SampleType) | `events::b1_times_of_a_read_are_times_and_not_thread_ids` |
//! | B2 | inherit with counter values in samples is refused by 4.13 to 6.12 | tried out once ([`Features`](crate::Features)); else not inherited, with a note | `samples::b2_samples_hold_the_group_counts_of_their_own_thread` |
//! | B3 | one refused kernel part fails the whole attach | the kernel is left out, with a note | `unprivileged::b3_the_kernels_part_is_left_out_aloud` |
//! | B4 | rings hang up with the thread that owns them, and the reader spins | rings belong to dummy events of the reader | `attach::b4_the_end_of_a_watched_thread_does_not_make_the_reader_spin` |
//! | B5 | threads found late are attached twice | coverage by fork records | `attach::t6_no_fault_is_sampled_twice_by_two_events_of_the_session` |
//! | B6 | the zombie of a main thread fails the attach for good | a thread that can't be found is skipped | `attach::b6_a_zombie_main_thread_is_skipped` |
//! | B7 | unknown records and ids end the reader | delivered as unknown, and counted | `records::any_bytes_parse_or_fail_without_panic` |
//! | B8 | ring positions read and written without ordering | acquire and release | `events::records_come_out_of_a_ring_whole_through_many_wraps` |
//! | B9 | a wakeup per sample | a watermark of a quarter ring, and a timeout | `losses::t14_records_below_the_watermark_are_read_all_the_same` |
//! | B10 | a copy of each mapping and fork per event | one carrier per place | `attach::b10_side_band_records_come_once` |
//! | B11 | forked and exec'd children go on sampling | `inherit_thread`, `remove_on_exec`, close on exec | `sessions::b11_children_are_followed_only_when_asked` |
//! | B12 | the descriptor budget counts threads again | on the difference, per pass | `attach::b12_…`, `unprivileged::descriptors_are_raised_or_the_lack_is_told` |
//! | B13 | ring sizes that other page sizes refuse, no smaller try | powers of two of pages, halved until mapped | `attach::t20_rings_are_halved_until_the_kernel_maps_them` |
//! | B14 | stop waits for a run that may never come; no second run | a flag and an eventfd | `sessions::b14_a_session_stops_before_its_run_and_runs_again` |
//! | B15 | errors of another type escape attach | one [`AttachError`](crate::AttachError); a failed attach is dropped whole | `attach::b15_descriptors_are_closed_whatever_happens` |
//! | B16 | moving an event leaks its descriptor | owned descriptors | `attach::b15_descriptors_are_closed_whatever_happens` |
//! | B17 | a clock offset measured once, on one CPU | `CLOCK_MONOTONIC` in the kernel | `samples::times_lie_between_two_readings_of_the_clock` |
//! | B18 | losses without time, and losses after the last drain untold | ids on every record; the kernel's own count at the end | `losses::t17_sampled_and_lost_make_all_that_happened` |
//!
//! # The kernel's traps
//! | | Trap | Here | Test |
//! |---|---|---|---|
//! | T1 | a ring for an inherited event on any CPU is refused | rings per core | `events::t1_t19_rings_that_the_kernel_refuses_are_refused` |
//! | T2 | redirecting such an event into any ring is accepted and races | never done: a redirect stays on its CPU or thread | `events::t24_output_can_be_redirected_and_undone` |
//! | T3 | inherit includes forked processes | [`Inherit`](crate::Inherit) | `sessions::b11_children_are_followed_only_when_asked` |
//! | T4 | comparing two lists of threads misses and doubles | fork records with their times | `attach::t4_threads_that_come_and_go_while_attaching_are_watched_once`, `attach::coverage` |
//! | T5 | a zombie is refused like a thread that is gone | skipped | `attach::b6_a_zombie_main_thread_is_skipped` |
//! | T6 | attaching twice doubles samples | duplicates are closed, their records dropped and counted | `attach::t6_no_fault_is_sampled_twice_by_two_events_of_the_session` |
//! | T7 | a new period does not reach threads that inherited | documented at [`Event::period`](crate::Event::period) | `events::t7_the_period_can_be_changed` |
//! | T8 | stream ids move between threads | never used: threads are told apart by tid | `samples::one_event_may_be_for_one_thread_only` |
//! | T9 | software events carry another profiler's id | the session's only such event gets the sample, with an id of its own; with several such events the sample comes without an event, and is counted; samples of windows get their own id back | `samples::two_sessions_on_one_thread_lose_no_sample`, `windows::t9_…` |
//! | T10 | the period in a sample makes each occurrence one | left out for counted events with a period above one | `events::t10_…` |
//! | T11 | each inherited event costs each new thread | no event of the session's own beside the user's | `attach::b10_side_band_records_come_once` |
//! | T12 | enabling takes longer the more events a thread has | single events start as they are opened | `sessions::existing_and_later_threads_…` |
//! | T13 | switch records cost a switch a third more | off unless asked for | `samples::switches_are_told_without_the_counter` |
//! | T14 | readiness is a flag that the first look takes | every ring is drained after any wake, and at each timeout | `losses::t14_…` |
//! | T15 | a ring whose thread ended hangs up at once | the reader owns the rings | `attach::b4_…` |
//! | T16 | disabling and closing wake nobody | an eventfd wakes the reader | `sessions::b14_…` |
//! | T17 | a loss is reported with the next record only | the event's own count is read at the end | `losses::t17_…` |
//! | T18 | frequencies above the limit are refused, periods throttled | lowered with a note; throttling counted | `losses::t18_throttling_is_counted`, `events::refusals_name_cause_and_remedy` |
//! | T19 | records may wrap within their body | put together | `ring::tests`, at every offset |
//! | T20 | the allowance of locked memory is shared by all of a user's processes | rings are halved | `unprivileged::t20_large_rings_shrink_without_privilege` |
//! | T21 | the watermark is the ring owner's | set on the owner | `losses::t14_…` |
//! | T22 | no conversion from the CPU's own clock | not offered | — |
//! | T23 | rings can be written backwards for flight recorders | by [`Event`](crate::Event) and its attr; sessions write forwards | — |
//! | T24 | undoing a redirect needs a 64-bit -1 | done so | `events::t24_output_can_be_redirected_and_undone` |
//! | T25 | a blocked SIGTRAP is dropped | samples by signals can be lost so; they are the last resort | `ladder::signals_sample_existing_and_later_threads` |
//!
//! CPUs that go and come back: `privileged::cpus_that_come_back_are_watched_again`, with `PERFEVENTS_TEST_HOTPLUG=1`.
//! `IOC_REFRESH` on clocks hangs kernels 6.16 and 6.17: refused there
//! ([`limits::refresh_of_clocks_is_unsafe`](crate::limits::refresh_of_clocks_is_unsafe)),
//! `events::refresh_takes_exactly_as_many_samples_as_asked`.
