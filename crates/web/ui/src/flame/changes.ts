// Changes of call stacks that the page's address carries: functions and modules that are left out, and folded recursion.

import type { Parameters } from "../net/client";
import { CHANGE_LISTS, type ChangeList, go, state } from "../state/url";

/** The parameters of requests for trees. */
export function changeParameters(): Parameters {
  const out: Parameters = { fold: state.fold };
  for (const list of CHANGE_LISTS) out[list] = [...state[list]];
  return out;
}

/** The profile to compare with; none while call stacks are changed, since whole stacks are compared. */
export function comparedWith(): Parameters {
  const isChanged = state.fold !== "" || CHANGE_LISTS.some((list) => state[list].length > 0);
  return { with: isChanged ? "" : state.with };
}

/** Adds a function or module to a list, or takes it out. */
export function toggleChange(list: ChangeList, key: string): void {
  const keys = state[list];
  go({ [list]: keys.includes(key) ? keys.filter((each) => each !== key) : [...keys, key] });
}
