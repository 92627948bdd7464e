import { render } from "solid-js/web";
import { App } from "./app";
import { findToken } from "./net/client";
import { followStatus } from "./state/profile";
import { followAddress } from "./state/url";
import { followTheme } from "./shell/theme";
import "./style/base.css";
import "./style/shell.css";
import "./style/table.css";
import "./style/views.css";
import "./style/code.css";
import "./style/flame.css";
import "./style/heat.css";

findToken();
followTheme();
followAddress();
void followStatus();
render(() => <App />, document.getElementById("page")!);
