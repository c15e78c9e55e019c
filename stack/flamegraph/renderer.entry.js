// SPDX-License-Identifier: BSD-2-Clause

// What page.html uses of d3-flame-graph and d3.
export { default as flamegraph } from "d3-flame-graph";
export { select } from "d3-selection";
export { timerFlush } from "d3-timer";
