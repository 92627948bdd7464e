// The legend of a flame graph that shows changes, and the frames that only the other profile has.

import { For, Show } from "solid-js";
import { plural, shareOf } from "../format";
import { fold, visible } from "../names";
import type { FlameAnswer } from "../net/types";
import { FactsMenu } from "../shell/FactsMenu";
import { isDark } from "../shell/theme";
import { status } from "../state/profile";
import { go, noChanges, state } from "../state/url";
import { Menu } from "../table/Tools";
import { differenceColour, goneColour, STRONGEST } from "./change";

/** The percent points at which the scale shows colours. */
const STEPS = [-STRONGEST, -3, -1, -0.3, 0, 0.3, 1, 3, STRONGEST];

export function ChangeLegend(props: { answer: FlameAnswer }) {
  const other = () => props.answer.other;
  const name = () => visible(status()?.profiles[other()?.profile ?? -1]?.label ?? "");
  const whole = () => other()?.weight[0] ?? 0;
  const gradient = () => `linear-gradient(to right, ${STEPS.map((points) => differenceColour(points, isDark())).join(", ")})`;
  return (
    <Show when={other()}>
      {(now) => (
        <div class="legend" role="group" aria-label="Legend of changes">
          <span>Change of share to {name()}:</span>
          <span>−{STRONGEST} points</span><span class="scale" role="img" aria-label="Blue: less; grey: the same; red: more" style={{ background: gradient() }} /><span>+{STRONGEST}</span>
          <span><span class="swatch" style={{ "--swatch": goneColour(isDark()) }} />gone: only here</span>
          <Show when={now().new.length > 0} fallback={<span>nothing is new</span>}>
            <Menu label={`New there: ${shareOf(now().new_weight, whole())}`} title="Frames that only the other profile has">
              <ul class="new-frames" tabindex="0" aria-label="Frames that only the other profile has">
                <For each={now().new.slice(0, 200)}>
                  {(frame) => (
                    <li title={`${visible(frame.name).slice(0, 2000)} ${visible(frame.module)}`}>
                      <span class="share">{shareOf(frame.weight, whole())}</span>
                      <span class="name">{fold(frame.name) || "[no name]"} <span class="dim">{frame.parent < 0 ? "" : `in ${fold(props.answer.functions[props.answer.nodes.function[frame.parent]!]?.name ?? "")}`}</span></span>
                    </li>
                  )}
                </For>
              </ul>
              <button onClick={() => go({ ...noChanges(), zoom: [], profile: now().profile, with: String(state.profile), focus: "", open: "" })}>Draw {name()}, compared with this one</button>
            </Menu>
            <span class="off-screen">{plural(now().new.length, "new frame")}</span>
          </Show>
          <FactsMenu facts={props.answer.facts} />
        </div>
      )}
    </Show>
  );
}
