import type { Machine } from "./machine.ts";

/** The phases of a turn of Node's event loop, in their order. */
export const phase = { timers: 0, poll: 1, check: 2 } as const;
export type Phase = (typeof phase)[keyof typeof phase];

export interface Task {
  at: number;
  readonly phase: Phase;
  readonly order: number;
  readonly machine: Machine;
  readonly run: () => void;
  cancelled: boolean;
}

/** Tasks by time, then by phase, then by the order in which they were queued: a binary heap. */
export class TaskQueue {
  readonly #heap: Task[] = [];

  get size(): number {
    return this.#heap.length;
  }

  push(task: Task): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(task);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Task;
      if (!isBefore(task, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = task;
  }

  pop(): Task | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      const right = child + 1;
      if (right < heap.length && isBefore(heap[right] as Task, heap[child] as Task)) child = right;
      if (!isBefore(heap[child] as Task, last)) break;
      heap[at] = heap[child] as Task;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

function isBefore(one: Task, other: Task): boolean {
  if (one.at !== other.at) return one.at < other.at;
  if (one.phase !== other.phase) return one.phase < other.phase;
  return one.order < other.order;
}
