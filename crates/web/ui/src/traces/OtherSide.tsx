// The way from the selected time of a profile to the calls of a trace beside it.

import { Show } from "solid-js";
import { loaded } from "../state/profile";
import { state } from "../state/url";
import { showCalls, traceBeside } from "./state";

export function OtherSide() {
  return (
    <Show when={traceBeside() !== null && state.time !== null && loaded()}>
      {(profile) => <button onClick={() => void showCalls(profile())} title="Show the traced calls of this time">Calls of this time</button>}
    </Show>
  );
}
